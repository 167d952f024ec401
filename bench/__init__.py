"""The speed table: the speed of newsfabric on this machine, beside the speed that was asked for.

Run with ``make bench``. It holds no tests: the machine is shared and noisy, so figures are shown
beside those of a bare chain of brokers, measured in the same run.
"""
