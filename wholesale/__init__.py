"""The per-region services on the core and client clusters: router and frontdesk.

Any number of each runs in a region, none is first, and each can be killed at any moment.
"""
