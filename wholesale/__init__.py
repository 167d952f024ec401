"""The services of one region, beside its brokers; newsfabric.kinds lists them.

A region runs any number of each. None is a leader, and each can be killed at any moment.
"""
