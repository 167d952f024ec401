"""The native engine: readers' sockets live in a process of their own, the data plane.

This package is the control plane's end of it. :mod:`~gateway.native.wire` is the protocol as
bytes, :mod:`~gateway.native.link` carries it, :mod:`~gateway.native.plane` starts the data plane
and stays attached to it, :mod:`~gateway.native.verbs` decides what readers ask for,
:mod:`~gateway.native.marks` say where the next one goes on. No object here stands for a reader.
"""
