"""The router: makes numbered, stored, routed envelopes of publishers' messages.

A pipeline of small stages, each counted at its input and output::

    deliveries ─► decode ─► validate ─► identify ─► store ─► route ─► (acknowledge)
                  └────── intake.py ──────────┘  storing.py  routing.py  acknowledging.py

The first three run where the delivery arrives; the others are one loop each and hand on
batches that form by themselves: what came in while the stage was busy is its next batch, so
a lone message passes at once and a flood is taken in hundreds. No message has a task.
"""
