"""The router: turns publishers' messages into envelopes that are numbered, stored and routed.

A pipeline of small stages, each counted at its input and output::

    deliveries ─► decode ─► validate ─► identify ─► store ─► route ─► (acknowledge)
                  └────── intake.py ──────────┘  storing.py  routing.py  acknowledging.py

The first three stages run where the delivery arrives. The others are one loop each, and batches
form by themselves: messages that arrive while a stage is busy are its next batch. So a single
message passes at once, and a flood is taken in hundreds. No message has a task of its own.
"""
