"""The mirror: a share of one fabric's live traffic, played into another one whose answers don't
matter, and a comparison of both.

Pure: which messages go and as what (:mod:`~newsfabric.mirror.copying`), what became of each
(:mod:`~newsfabric.mirror.ledger`, :mod:`~newsfabric.mirror.delays`), how many readers
(:mod:`~newsfabric.mirror.crowd`, :mod:`~newsfabric.mirror.board`), what is shown
(:mod:`~newsfabric.mirror.report`). What does I/O is thin: the carrier of messages, the observers,
the process of the readers, and the run that holds them together. docs/mirror.md says what is
promised to the original.
"""
