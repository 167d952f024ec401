"""The native engine: readers' sockets live in a process of their own, the data plane.

This package is the control plane's end of it. The protocol as bytes: ``wire``, ``commands``,
``events``, ``marks``. The process and the link to it: ``program``, ``link``, ``plane``,
with what waits for it (``room``). What
is said over it: ``serving``, ``readers``, ``said``. What the rest of the gateway sees of it:
``engine``, ``tally``. No object here stands for a reader.
"""
