"""The mailbox service: user marks are written to the store and announced.

::

    upstream ─► look up ─► write the mark ─► announce ─► (ack)

Several services compete on the same queues. Each step is idempotent, so services need no knowledge
of each other, and unfinished marks of a service that dies are done again by another one.
"""
