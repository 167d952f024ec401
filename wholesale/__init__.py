"""The services of one region, beside its brokers: router, mailbox, frontdesk and scaler.

A region runs any number of each. None is a leader, and each can be killed at any moment.
"""
