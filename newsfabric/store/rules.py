"""Rules of all stores: how long an envelope is kept, and which version of a key is newest. Pure.

An envelope has two ends. After the first no reader is shown it; after the second it is deleted. The
second is never earlier than ten minutes after routing, whatever the topic's ttl: the numbers of a
log run through all topics. A gateway that lacks a number must be able to find even a message that
no reader is shown any more.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Final

from newsfabric.fixed import fixed
from newsfabric.messages.envelope import MAX_MS, Envelope, identity_of_id, ms_of_id
from newsfabric.messages.mailbox import UserMark
from newsfabric.topics import TopicPolicy, TopicTable

# A message is kept for at least this time, however short its ttl: a gateway that was cut off for
# some minutes still finds its number.
SHORTEST_MS: Final = 600_000
# Index rows and rows of the directory outlive all messages by this time.
_LOG_STAYS_MS: Final = 2 * 86_400_000
# Bodies that `latest` may hold in memory at once.
MAX_LATEST: Final = 1_000
# Numbers of a log that are read at once: as many as a router has in flight at most.
MAX_SPAN: Final = 4_096
# A user's individual messages that are read at most.
MAX_MAILBOX: Final = 1_000
# For topics that topics.toml doesn't know (any more): routers reject them, old rows remain.
_DEFAULT_TTL: Final = TopicPolicy(pattern="#").ttl
# Ids are hex digits in lower case.
_AFTER_ALL_IDS: Final = "g"

# One envelope of one log. The id alone isn't enough: two routers that route copies of one message
# in the same millisecond give them one id, and each log must account for its number.
RowKey = tuple[str, str, int, int]


@fixed(frozen=True, slots=True)
class Lifetime:
    """The two ends of an envelope, ms since the epoch: readers are shown it before
    ``readable_until``, its number is a message before ``kept_until``."""

    readable_until: int
    kept_until: int


def lifetime(envelope: Envelope, topics: TopicTable) -> Lifetime:
    """Return when ``envelope`` stops being shown and when it is deleted.

    Both are counted from the time in its id, so a repeated write changes nothing.
    """
    routed_ms = ms_of_id(envelope.id)
    end = routed_ms + ttl_ms(envelope.topic, topics)
    shown = end if envelope.expires_ms is None else min(end, envelope.expires_ms)
    return Lifetime(shown, routed_ms + _kept_ms(envelope.topic, topics))


def mark_ends(mark: UserMark, topics: TopicTable) -> int:
    """Return when the message that ``mark`` is on is deleted, and the mark with it."""
    return ms_of_id(mark.id) + _kept_ms(mark.topic, topics)


def index_ends(kept_until: int) -> int:
    """Return when the index row of a message kept until ``kept_until`` is deleted, in ms.

    Later than the message: a gateway that looks for the number meanwhile finds that it is GONE, and
    doesn't wait for it.
    """
    return kept_until + _LOG_STAYS_MS


def directory_ends(now_ms: int, topics: TopicTable) -> int:
    """Return when a row of the directory written now is deleted, in ms: after all messages."""
    return now_ms + longest_ms(topics) + _LOG_STAYS_MS


def is_gone(id_text: str, topic: str, topics: TopicTable, now_ms: int) -> bool:
    """Return whether the time of message ``id_text`` of ``topic`` is over, for its number too."""
    return now_ms >= kept_until(id_text, topic, topics)


def kept_until(id_text: str, topic: str, topics: TopicTable) -> int:
    """Return the end, in ms, of message ``id_text`` of ``topic``, for its number too."""
    return ms_of_id(id_text) + _kept_ms(topic, topics)


def ttl_ms(topic: str, topics: TopicTable) -> int:
    """Return for how many ms messages of ``topic`` are shown at most."""
    policy = topics.of_any(topic)
    return int((_DEFAULT_TTL if policy is None else policy.ttl) * 1000)


def _kept_ms(topic: str, topics: TopicTable) -> int:
    """Return for how many ms messages of ``topic`` are kept."""
    return max(ttl_ms(topic, topics), SHORTEST_MS)


def longest_ms(topics: TopicTable) -> int:
    """Return the longest ttl of all topics and of login tokens, in ms."""
    longest = max((policy.ttl for policy in topics.policies), default=0.0)
    longest = max(longest, topics.tokens_ttl, _DEFAULT_TTL)
    return int(longest * 1000)


def row_key(envelope: Envelope) -> RowKey:
    """Return the key of ``envelope``'s row, equal for a repeated write; sorts by time first."""
    return (envelope.id, envelope.router, envelope.epoch, envelope.seq)


def check_span(first: int, last: int) -> None:
    """Raise ValueError unless ``first`` to ``last`` are numbers that may be read at once."""
    if not (first >= 1 and last - first < MAX_SPAN):
        raise ValueError(f"not numbers from 1 on, {MAX_SPAN} at most: {first} to {last}")


def rank(envelope: Envelope) -> tuple[int, str]:
    """Return the sort key of the versions of one key: the version, then the id.

    An envelope without a version ranks below any with one. The order must be total, or the newest
    version would depend on the order of writes.
    """
    return (-1 if envelope.version is None else envelope.version, envelope.id)


def clock_ms() -> int:
    """Return this machine's clock in ms since the epoch."""
    return time.time_ns() // 1_000_000


def first_id(ms: int) -> str:
    """Return a text that sorts after all ids routed before ``ms`` and before all others."""
    if ms > MAX_MS:
        return _AFTER_ALL_IDS
    text = f"{max(ms, 0):012x}"
    return f"{text[:8]}-{text[8:]}"


def checked_id(before: str) -> str:
    """Return ``before`` if it is a message id, else raise ValueError. For ids from readers."""
    identity_of_id(before)
    return before


def newest_of_each(newest_first: Iterable[Envelope], limit: int) -> list[Envelope]:
    """Return at most ``limit`` envelopes, newest first: the first one met of each identity."""
    found: dict[int, Envelope] = {}
    if limit <= 0:
        return []
    for envelope in newest_first:
        found.setdefault(envelope.identity, envelope)
        if len(found) == limit:
            break
    return list(found.values())


def oldest_of_each(newest_first: Iterable[Envelope], limit: int) -> list[Envelope]:
    """Return at most ``limit`` envelopes, newest first: of each identity the last met with a body.

    The search ends at ``limit`` identities: an older copy beyond isn't looked for.
    """
    found: dict[int, Envelope] = {}
    if limit <= 0:
        return []
    for envelope in newest_first:
        if not envelope.body and envelope.identity in found:
            # This copy can't be read, and the other copy has the same content.
            continue
        # Moved to the end, which is the place of the older copy.
        found.pop(envelope.identity, None)
        found[envelope.identity] = envelope
        if len(found) == limit:
            break
    return list(found.values())


def mailbox_limit(limit: int) -> int:
    """Return the bounded ``limit`` of :meth:`newsfabric.store.Store.mailboxes`."""
    return min(max(limit, 0), MAX_MAILBOX)


def latest_limit(limit: int) -> int:
    """Return the bounded ``limit`` of :meth:`newsfabric.store.Store.latest`."""
    return min(max(limit, 0), MAX_LATEST)
