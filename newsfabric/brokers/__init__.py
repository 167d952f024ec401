"""A broker's management API, and a watch over the messages of its shovels.

A broker's contents are :mod:`newsfabric.topology`; messages go in and out by
:mod:`newsfabric.amqp`.
"""
