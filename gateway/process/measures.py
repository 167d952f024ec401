"""The gateway's metrics. One process is one gateway, so they are module-level.

Labels are closed sets: transports, close reasons, topic classes, policies, error codes, regions.
"""

from __future__ import annotations

import time

from gateway.memory.hub import Dropped
from gateway.wire.publication import Publication
from newsfabric import metrics
from newsfabric.closing import NO_PONG, SLOW_READER
from newsfabric.messages.envelope import taken_ms
from newsfabric.metrics.bulk import HistogramSums
from newsfabric.process.figures import Wanted
from newsfabric.tls import CERTIFICATES_END

READERS = metrics.gauge(
    "gateway_readers", "Connections of readers that are open now", ["transport"]
)
CAPACITY = metrics.gauge("gateway_capacity_readers", "Readers for whom there is room")
CONNECTS = metrics.counter("gateway_connects", "Readers accepted", ["transport"])
REJECTED_CONNECTS = metrics.counter("gateway_rejected_connects", "Readers refused", ["reason"])
CLOSES = metrics.counter("gateway_closes", "Connections ended", ["reason"])
DELIVERIES = metrics.counter("gateway_deliveries", "Frames given to readers", ["transport"])
PUBLICATIONS = metrics.counter("gateway_publications", "Messages published", ["class"])
DUPLICATES = metrics.counter("gateway_duplicates", "Copies and repeats dropped")
DIFFERING = metrics.counter(
    "gateway_differing_copies",
    "Copies whose body differs from the first, published one",
)
COPIES = metrics.counted(
    "gateway_copies", "Arrivals by the shovels that brought them and their place", ["way", "place"]
)
LEAD = metrics.histogram(
    "gateway_race_lead", "Lead of the first copy over that of the next way", ["way"]
)
UNKNOWN_TOPICS = metrics.counter(
    "gateway_unknown_topic_messages", "Messages of topics not in topics.toml"
)
UNDECODABLE = metrics.counter(
    "gateway_undecodable_messages", "Messages on the feed that aren't ours"
)
DROPPED = metrics.counter(
    "gateway_dropped_messages", "Messages that slow readers didn't get", ["policy"]
)
ERRORS = metrics.counter("gateway_errors", "Error pushes", ["code"])
VERBS = metrics.counted("gateway_verbs", "Verbs obeyed", ["action"])
TOKENS = metrics.counter("gateway_tokens", "Tokens of readers, by outcome", ["outcome"])
STORE_FAILURES = metrics.counter("gateway_store_failures", "Reads that the store didn't answer")
RESUMES = metrics.counter(
    "gateway_resumes",
    "Answers to a subscribe with a position; with a gap: why there may be one",
    ["result", "reason"],
)
ACCEPT_PAUSES = metrics.counter("gateway_accept_pauses", "Times that descriptors ran out")
DELAY = metrics.bulk_histogram(
    "gateway_delay",
    "Time from the router to the reader's socket, for each delivery that the socket took at once,"
    " by the region that routed it and the shovel that brought it first",
    ["class", "origin", "way"],
)
HELD = metrics.counter(
    "gateway_held_deliveries", "Deliveries that sockets didn't take at once: they wait in outboxes"
)
BEHIND = metrics.bulk_histogram(
    "gateway_reader_behind", "Time from the first frame that waited for a reader until none did"
)
FEED_AGE = metrics.gauge("gateway_feed_age_seconds", "Time since the last tick of the own region")
OUTBOXES = metrics.gauge("gateway_outbox_bytes", "Bytes that wait for readers, in all processes")
TOPICS = metrics.gauge("gateway_topics", "Topics remembered")
MEMORY = metrics.gauge("gateway_memory_bytes", "Weight of remembered messages")
IDENTITIES = metrics.gauge("gateway_identities", "Identities remembered")
EVICTED_EARLY = metrics.counter(
    "gateway_evicted_identities",
    "Identities forgotten before their time, by the control plane and by the data plane",
)
LOGS = metrics.gauge("gateway_logs", "Known logs of routers")
UNLISTED = metrics.gauge(
    "gateway_unlisted_logs", "Logs of received messages that the directory has lacked for a minute"
)
TOO_FAR = metrics.counter(
    "gateway_disbelieved_times", "Times from routers that are more than a day ahead"
)
MISSING = metrics.gauge(
    "gateway_missing_numbers", "Numbers of logs that exist for certain and weren't seen"
)
HOLES = metrics.gauge("gateway_holes_open", "Runs of missing numbers")
REPAIR = metrics.histogram(
    "gateway_repair", "Time from the first sign of a missing number to its message"
)
RECOVERED = metrics.counter("gateway_recovered_messages", "Messages published from the store")
LATE = metrics.counter("gateway_late_messages", "Messages whose copies were looked up")
LEFT_TO_FOLLOWER = metrics.counter(
    "gateway_left_messages", "Messages of the feed that were left to be read from the store"
)
READ_NUMBERS = metrics.counter("gateway_read_numbers", "Numbers read that were missing")
LOG_FAILURES = metrics.counter(
    "gateway_log_failures", "Reads of the directory and of missing numbers that failed"
)

# An increase leaves out a series' first value: counters that alerts use start at 0.
REJECTED_CONNECTS.labels("capacity")
for _reason in (SLOW_READER.name, NO_PONG.name, "lost"):
    CLOSES.labels(_reason)

# A gateway's metrics on the operations board.
FIGURES = (
    Wanted(READERS),
    Wanted(CONNECTS),
    Wanted(REJECTED_CONNECTS, "reason"),
    Wanted(CLOSES, "reason"),
    Wanted(DELIVERIES),
    Wanted(PUBLICATIONS),
    Wanted(DUPLICATES),
    Wanted(DROPPED, "policy"),
    Wanted(ERRORS),
    Wanted(RESUMES, "result"),
    Wanted(STORE_FAILURES),
    Wanted(DELAY),
    Wanted(FEED_AGE),
    Wanted(OUTBOXES),
    Wanted(MEMORY),
    Wanted(HOLES),
    Wanted(MISSING),
    Wanted(REPAIR),
    Wanted(RECOVERED),
    Wanted(LOG_FAILURES),
    Wanted(CERTIFICATES_END, "use"),
)


def delay_of(publication: Publication) -> HistogramSums | None:
    """Return the histogram for the deliveries of ``publication``; None if they aren't measured."""
    if publication.way is None:
        return None
    topic_class, origin = publication.policy.topic_class, publication.envelope.origin
    return DELAY.labels(topic_class, origin, publication.way)


def age(publication: Publication) -> float:
    """Return the age in s by a router's time, not the publisher's; clocks differ: at least 0."""
    return max(0.0, time.time() - taken_ms(publication.envelope) / 1000)


def dropped(reason: Dropped) -> None:
    """Count an envelope that isn't published, by whichever way it came."""
    if reason is Dropped.UNKNOWN_TOPIC:
        UNKNOWN_TOPICS.inc()
        return
    DUPLICATES.inc()
    if reason is Dropped.DIFFERING:
        DIFFERING.inc()


def published(publication: Publication) -> None:
    """Count a publication that has reached its last reader."""
    PUBLICATIONS.labels(publication.policy.topic_class).inc()
    delay = delay_of(publication)
    if delay is not None:
        # Deliveries were measured where they were made; this only adds one message as an exemplar.
        delay.exemplify(age(publication), {"id": publication.envelope.id})
