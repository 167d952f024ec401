"""The metrics of the router. Each stage is counted at its input and output, to locate a loss."""

from __future__ import annotations

import math
from typing import Final

from newsfabric import metrics
from newsfabric.amqp.spread import SKIPPED
from newsfabric.messages.envelope import REJECT_REASONS
from newsfabric.process.figures import Wanted
from newsfabric.tls import CERTIFICATES_END

INTERNAL: Final = "internal"

_ENTERED = metrics.counted("router_stage_entered_messages", "Messages into each stage", ["stage"])
_LEFT = metrics.counted("router_stage_left_messages", "Messages out of each stage", ["stage"])
_REJECTED = metrics.counter(
    "router_rejected_messages", "Messages that can't be accepted", ["reason"]
)
_REPEATED = metrics.counter("router_repeated_messages", "Repeats of known messages", ["while"])

ROUTED_BEFORE = _REPEATED.labels("routed")
UNDER_WAY = _REPEATED.labels("under_way")
DIFFERING = metrics.counter(
    "router_differing_repeats",
    "Repeats of a message_id with another topic or body; the first one stands",
)
COPIES = metrics.counted(
    "router_copies", "Arrivals by the shovel that brought them and their place", ["way", "place"]
)
LEAD = metrics.histogram(
    "router_race_lead", "Lead of the first copy over that of the next way", ["way"]
)
SHED = metrics.counter(
    "router_shed_messages",
    "Bronze messages dropped because the store was behind; not sent to rejected",
)
EXPIRED = metrics.counter(
    "router_expired_messages",
    "Messages given up because they waited too long for store or broker",
)
EVICTED_EARLY = metrics.counter(
    "router_evicted_identities",
    "Identities forgotten before their time; a repeat of one is routed again",
)
STORE_RETRIES = metrics.counter("router_store_retries", "Retried writes")
PUBLISH_RETRIES = metrics.counter("router_publish_retries", "Retried publications")
REFUSED = metrics.counter(
    "router_refused_publications", "Publications that a queue refused; all other queues have them"
)
FORGED_CANARIES = metrics.counter(
    "router_forged_canaries", "Canaries from no keeper of the region that they name"
)
VOID = metrics.counter(
    "router_void_numbers", "Numbers written as void: the store couldn't hold their messages"
)
LISTING_RETRIES = metrics.counter(
    "router_listing_retries", "Retried writes of the router's row in the directory"
)
OWN_LOGS_CLOSED = metrics.counter(
    "router_closed_own_logs", "Times that others closed this router's log, after it was silent"
)
LOGS_CLOSED = metrics.counter("router_closed_logs", "Logs of dead routers that this one has closed")
REQUEUED = metrics.counter(
    "router_given_back_messages",
    "Messages given back to the broker: the router's log was closed, or its clock is wrong",
)
CLOCK_AHEAD = metrics.gauge(
    "router_clock_ahead_seconds",
    "Lead of this machine's clock over the store's; beyond 30 no new message is routed. NaN until"
    " they were compared",
)
CLOCK_AHEAD.set(math.nan)
LOW = metrics.gauge("router_settled_seq", "All numbers up to it are settled")
RECEIPTS = metrics.counter("router_receipts", "Receipts sent and confirmed")
SEQ = metrics.gauge("router_seq", "Last assigned number")
_CLAIMED_AGE = metrics.bulk_histogram(
    "router_claimed_age",
    "Age of new messages on arrival, by their publishers' timestamps, or by the first broker's"
    " stamp where there is none",
)
CLAIMED_AHEAD = metrics.counter(
    "router_claimed_ahead_messages",
    "New messages whose publishers' timestamps are later than their arrival",
)
WAITING = metrics.gauge("router_waiting_messages", "Messages waiting for the store")
_SECONDS = metrics.bulk_histogram(
    "router_pass", "Time from delivery until both publications are confirmed"
)
STORE_SECONDS = metrics.histogram("router_store_write", "Time of one write, of up to 256 messages")
REPORTS = metrics.counter("router_reports", "Reports to frontdesks, by outcome", ["outcome"])

# The figures of a router that the operations board shows.
FIGURES: Final = (
    Wanted(_ENTERED, "stage"),
    Wanted(_LEFT, "stage"),
    Wanted(_REJECTED, "reason"),
    Wanted(_REPEATED, "while"),
    Wanted(SHED),
    Wanted(EXPIRED),
    Wanted(VOID),
    Wanted(STORE_RETRIES),
    Wanted(PUBLISH_RETRIES),
    Wanted(RECEIPTS),
    Wanted(WAITING),
    Wanted(_CLAIMED_AGE),
    Wanted(CLAIMED_AHEAD),
    Wanted(_SECONDS),
    Wanted(STORE_SECONDS),
    Wanted(SKIPPED, "node"),
    Wanted(CERTIFICATES_END, "use"),
)

CLAIMED_AGE = _CLAIMED_AGE.labels()
SECONDS = _SECONDS.labels()
REJECTED: Final = {reason: _REJECTED.labels(reason) for reason in (*REJECT_REASONS, INTERNAL)}


class StageCounter:
    """The counters of one stage: :meth:`entered` before its work, :meth:`left` for its output."""

    def __init__(self, stage: str) -> None:
        self.entered = _ENTERED.labels(stage).inc
        self.left = _LEFT.labels(stage).inc


DECODE: Final = StageCounter("decode")
VALIDATE: Final = StageCounter("validate")
IDENTIFY: Final = StageCounter("identify")
STORE: Final = StageCounter("store")
ROUTE: Final = StageCounter("route")
