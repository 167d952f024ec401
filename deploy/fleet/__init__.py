"""Real Debian machines on one machine: boots them, wires them, breaks them, and takes them down.

Each machine is a systemd-nspawn container with systemd as its init, sshd, an address, and a disk of
its own (an overlay on one image). All of them live in one network namespace, which is the router
between the regions' bridges, so that a region can really be cut off. Nothing is added to the host's
own network. ``python -m fleet --help`` lists the commands; docs/fleet.md explains them.

- :mod:`fleet.plan`: the machines, as values
- :mod:`fleet.kernel`: running machines and mounts: asked of the kernel, never remembered
- :mod:`fleet.image`, :mod:`fleet.network`, :mod:`fleet.machines`: the parts
- :mod:`fleet.access`, :mod:`fleet.forwards`, :mod:`fleet.playbooks`: the ways in
- :mod:`fleet.fleet`: the whole
"""
