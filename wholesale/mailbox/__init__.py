"""The mailbox service: what users did with their individual messages, written down and told.

::

    upstream ─► look up ─► write the mark ─► announce ─► (ack)

Any of several, competing on the same queues; whatever is done twice is done once, so none of
them has to know of the others, and what one leaves behind when it dies another does again.
"""
