"""Where a gateway and a router spend their time under load: flame graphs and highest costs.

Run with ``make profile``. It says where to look, not how fast anything is: a process that is
profiled is slower, and ``make bench`` measures without.
"""
