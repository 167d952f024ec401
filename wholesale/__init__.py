"""The services of one region, beside its brokers: router, mailbox, frontdesk and scaler.

Any number of each runs in a region, none is first, and each can be killed at any moment.
"""
