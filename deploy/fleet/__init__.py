"""Real Debian machines on one machine: boots them, wires them, breaks them, and takes them down.

Each machine is a systemd-nspawn container with systemd as its init, sshd, an address, and a disk
of its own (an overlay on one image). All of them live in one network namespace, which is the
router between the regions' bridges, so that a region can be cut off for real. Nothing is added to
the host's own network. ``python -m fleet --help`` says what it can do; docs/fleet.md how it works.

- :mod:`fleet.plan`: which machines there are, as values
- :mod:`fleet.kernel`: what runs, what is mounted: asked of the kernel, never remembered
- :mod:`fleet.image`, :mod:`fleet.network`, :mod:`fleet.machines`: the parts
- :mod:`fleet.access`, :mod:`fleet.forwards`, :mod:`fleet.playbooks`: how one gets in
- :mod:`fleet.fleet`: the whole
"""
