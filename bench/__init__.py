"""The speed table: what newsfabric does on this machine, beside what was asked of it.

Run with ``make bench``. Nothing here is a test: the machine is shared and noisy, so
figures are shown with a bare chain of brokers measured in the same run.
"""
