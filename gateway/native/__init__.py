"""The native engine: readers' sockets live in a process of their own, the data plane.

This package is the control plane's end. The protocol as bytes: ``wire``, ``commands``, ``events``,
``saved_logs``. The process, the link to it, and both together as the gateway's engine: ``program``,
``link``, ``plane``, with the ``totals`` of its counters. The answers to its events: ``serving``,
``readers``. No object here lives as long as a reader.
"""
