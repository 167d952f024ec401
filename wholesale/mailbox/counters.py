"""The metrics of the mailbox service."""

from __future__ import annotations

from typing import Final

from newsfabric import metrics
from newsfabric.amqp.spread import SKIPPED
from newsfabric.messages.mailbox import MARK_KINDS
from newsfabric.process.figures import Wanted
from newsfabric.tls import CERTIFICATES_END

_MARKS = metrics.counter("mailbox_marks", "Marks written and announced", ["mark"])
_IGNORED = metrics.counter("mailbox_ignored_marks", "Marks without effect", ["why"])

WRITTEN: Final = {kind: _MARKS.labels(kind) for kind in MARK_KINDS}
REPEATED = metrics.counter("mailbox_repeated_marks", "Marks that were present; announced again")
BAD = _IGNORED.labels("bad")
FORGED = _IGNORED.labels("forged")
UNKNOWN = _IGNORED.labels("unknown")
FAILED = _IGNORED.labels("failed")
LATER = metrics.counter("mailbox_early_lookups", "Look-ups of messages that weren't there yet")
STORE_RETRIES = metrics.counter("mailbox_store_retries", "Batches that the store failed to write")
PUBLISH_RETRIES = metrics.counter("mailbox_publish_retries", "Announcements sent again")
WAITING = metrics.gauge("mailbox_waiting_marks", "Marks that wait for their turn")
SECONDS = metrics.histogram("mailbox_pass", "Time from delivery to announcement")
REPORTS = metrics.counter("mailbox_reports", "Reports to frontdesks, by outcome", ["outcome"])

# The figures of a mailbox service that the operations board shows.
FIGURES: Final = (
    Wanted(_MARKS, "mark"),
    Wanted(_IGNORED, "why"),
    Wanted(REPEATED),
    Wanted(LATER),
    Wanted(STORE_RETRIES),
    Wanted(PUBLISH_RETRIES),
    Wanted(WAITING),
    Wanted(SECONDS),
    Wanted(SKIPPED, "node"),
    Wanted(CERTIFICATES_END, "use"),
)
