"""A fabric on machines of its own, seen and broken over ssh: its driver is ssh and systemd.

A folder with ``hosts.json`` is one (:mod:`operations.hosts.described`), as a folder with
``world.json`` is a world of processes on this machine. Nothing of ours needs to run on the
machines for it but Python and systemd.
"""
