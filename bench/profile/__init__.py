"""Profiles of a gateway and a router under load: flame graphs and highest costs.

Run with ``make profile``. The profiles show where the time is spent, not how fast anything is: a
process that is profiled is slower, and ``make bench`` measures without a profiler.
"""
