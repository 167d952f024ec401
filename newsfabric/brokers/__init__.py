"""A broker's management API, and a watch over what its shovels carry.

A broker's contents are :mod:`newsfabric.topology`; messages go in and out by
:mod:`newsfabric.amqp`.
"""
