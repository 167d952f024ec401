"""A fabric on machines of its own, inspected and broken over ssh, with systemd.

A folder with ``hosts.json`` is such a fabric (:mod:`operations.hosts.described`), as a folder with
``world.json`` is a world of processes on this machine. The machines need only Python and systemd
for it, no program of ours.
"""
