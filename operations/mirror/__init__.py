"""The mirror: a share of one fabric's live traffic, played into another one whose answers don't
matter, and a comparison of both.

Pure: which messages go and as what (:mod:`~operations.mirror.copying`), what became of each
(:mod:`~operations.mirror.ledger`, :mod:`~operations.mirror.delays`), how many readers
(:mod:`~operations.mirror.crowd`, :mod:`~operations.mirror.board`), what is shown
(:mod:`~operations.mirror.report`). What does I/O is thin: the carrier of messages, the observers,
the process of the readers, and the run that holds them together. docs/mirror.md says what is
promised to the original.
"""
