"""The mirror: plays a share of one fabric's live traffic into another, whose failures don't matter,
and compares both.

Pure: which messages are copied, and how (:mod:`~operations.mirror.copying`), the outcome of
each (:mod:`~operations.mirror.share_record`, :mod:`~operations.mirror.delays`), how many readers
(:mod:`~operations.mirror.crowd`, :mod:`~operations.mirror.board`), the printed report
(:mod:`~operations.mirror.report`). The parts with I/O are thin: the carrier of messages, the
observers, the process of the readers, and the run that connects them. docs/mirror.md states the
promises to the original.
"""
