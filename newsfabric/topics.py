"""Topics: their names, AMQP patterns over them, and the policies of ``topics.toml``.

The matcher follows AMQP 0-9-1 section 3.1.3.3 (topic exchange): words are separated by dots, ``*``
is exactly one word, ``#`` is zero or more words. It must agree with RabbitMQ on every case (empty
words included), because the gateway repeats the broker's decisions with it; tests/integration
compares the two.

Entries of topics.toml are tried in order and **the first match wins**.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Literal, cast, get_args

from newsfabric.errors import ConfigError
from newsfabric.numbers import is_whole, whole_number

TopicClass = Literal["gold", "silver", "bronze"]
Access = Literal["public", "registered", "owner", "granted"]
SlowPolicy = Literal["disconnect", "conflate", "drop_oldest"]


@dataclasses.dataclass(frozen=True, slots=True)
class ClassRules:
    """The meaning of a topic's class, apart from its place in :data:`CLASSES`.

    ``is_copied``: its messages are carried to the routers of every region, and of their own region
    on two ways, the second one through a queue for such messages alone. Other messages have one way
    to one region. ``may_be_dropped``: a router with too much to do drops them before it stores
    them. No class waits in a router for longer than :attr:`.Times.hold_ms`, and none decides about
    slow readers: topics.toml does, by ``slow``.
    """

    is_copied: bool
    may_be_dropped: bool


#: The classes, in the order in which a router stores the messages that wait.
CLASSES: Final[Mapping[TopicClass, ClassRules]] = {
    "gold": ClassRules(is_copied=True, may_be_dropped=False),
    "silver": ClassRules(is_copied=False, may_be_dropped=False),
    "bronze": ClassRules(is_copied=False, may_be_dropped=True),
}

# AMQP 0-9-1 section 4.2.5.3: a routing key is a short string of at most 255 octets.
MAX_TOPIC_BYTES: Final = 255
# First word of all topics of the fabric's own messages; no publisher may use it.
CONTROL_WORD: Final = "_fabric"
# First word of the topics of notes to publishers' tools about marks of individual messages.
NOTES: Final = "marks"
# The topic of users whose tokens are revoked: the one topic of the fabric itself that is stored.
REVOKED: Final = f"{CONTROL_WORD}.revoked"
# The topic of test messages that `newsfabric up` and operators send. Its messages have no content,
# so any publisher may publish there.
CANARY_TOPIC: Final = "fabric.canary"

_TOPIC: Final = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*", re.ASCII)
_PATTERN: Final = re.compile(r"([A-Za-z0-9_-]+|\*|#)(\.([A-Za-z0-9_-]+|\*|#))*", re.ASCII)
# An app_id with rights becomes a broker's user and the first word of its queues' names.
_APP_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
# First words of queues on client clusters that are the fabric's or RabbitMQ's own, and RabbitMQ's
# default user.
_TAKEN: Final = frozenset({"shovel", "frontdesk", "keeper", "amq", "guest"})
_DURATION: Final = re.compile(r"([0-9]{1,9})(ms|s|m|h|d)", re.ASCII)
_MAX_DURATION: Final = 999_999_999
_UNIT_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
# The longest validity of a reader's token, unless topics.toml has another.
TOKENS_TTL: Final = 30 * 86400.0
# Patterns become binding keys, and RabbitMQ 4.3 refuses a key with more.
MAX_HASHES: Final = 2
# Distinct topics come from outside, so the cache of matches is bounded.
_MATCH_CACHE: Final = 16_384


def is_topic(name: str) -> bool:
    """Return whether ``name`` is a topic: dotted words of ``[A-Za-z0-9_-]``, ≤ 255 bytes."""
    return len(name) <= MAX_TOPIC_BYTES and _TOPIC.fullmatch(name) is not None


def is_pattern(text: str) -> bool:
    """Return whether ``text`` is a pattern: dotted words, ``*`` or ``#``, ≤ 255 bytes."""
    return len(text) <= MAX_TOPIC_BYTES and _PATTERN.fullmatch(text) is not None


def owner_of(topic: str) -> str:
    """Return the user who owns ``topic`` where access is ``owner``: the last word, exactly."""
    return topic.rpartition(".")[2]


def matches(pattern: str, key: str) -> bool:
    """Return whether an AMQP topic ``pattern`` matches routing key ``key``, as RabbitMQ decides it.

    Both may be any strings; empty words count as words (``"a..b"`` has three). The empty key has no
    words for RabbitMQ, so only ``#`` patterns match it.
    """
    return _matches_words(_words(pattern), _words(key))


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split(".")) if text else ()


def _matches_words(pattern: tuple[str, ...], key: tuple[str, ...]) -> bool:
    # Row by row over the pattern: reachable[i] is True if the pattern so far can match the first i
    # words. Linear in pattern × key, whatever the number of '#'.
    reachable = [True] + [False] * len(key)
    for word in pattern:
        if word == "#":
            seen = False
            for i, value in enumerate(reachable):
                seen = seen or value
                reachable[i] = seen
        else:
            reachable = [False] + [
                reachable[i] and (word in ("*", part)) for i, part in enumerate(key)
            ]
    return reachable[-1]


def parse_duration(text: str) -> float:
    """Return the seconds in ``"90s"``, ``"15m"``, ``"12h"``, ``"7d"``, ``"500ms"``; ValueError."""
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ValueError(f"not a duration: {text!r} (write 90s, 15m, 12h or 7d)")
    return whole_number(found[1], 0, _MAX_DURATION) * _UNIT_SECONDS[found[2]]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TopicPolicy:
    """The policy of all topics that match ``pattern``, from topics.toml.

    ``keep`` counts messages in each hub's memory; ``ttl`` is seconds in the store; ``latest`` sends
    the newest message of each key on subscribe.
    """

    pattern: str
    topic_class: TopicClass = "silver"
    access: Access = "public"
    keep: int = 100
    ttl: float = 7 * 86400.0
    slow: SlowPolicy = "drop_oldest"
    latest: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class PublisherRights:
    """The rights of publisher ``app_id``: topics that one of the patterns ``topics`` matches."""

    app_id: str
    topics: tuple[str, ...]


class TopicTable:
    """The policies of topics.toml in order, and publishers' rights; both look-ups are cached.

    ``tokens_ttl`` is the longest validity (s) of a reader's token, and so the time for which a
    user's revocation has to be remembered.
    """

    def __init__(
        self,
        policies: Iterable[TopicPolicy],
        publishers: Iterable[PublisherRights] = (),
        *,
        tokens_ttl: float = TOKENS_TTL,
    ) -> None:
        self.policies: tuple[TopicPolicy, ...] = tuple(policies)
        #: Empty: all publishers may publish to every topic.
        self.publishers: tuple[PublisherRights, ...] = tuple(publishers)
        self.tokens_ttl = tokens_ttl
        self._own = TopicPolicy(
            pattern=REVOKED, topic_class="gold", access="granted", keep=0, ttl=tokens_ttl
        )
        self._rights = {p.app_id: [_words(t) for t in p.topics] for p in self.publishers}
        self._split = [(_words(policy.pattern), policy) for policy in self.policies]
        #: The patterns of copied classes, in order: binding keys of their ways.
        self.copied_patterns = tuple(
            p.pattern for p in self.policies if CLASSES[p.topic_class].is_copied
        )
        self._copied = [_words(pattern) for pattern in self.copied_patterns]
        self.find = functools.lru_cache(maxsize=_MATCH_CACHE)(self._find)
        self.may_publish = functools.lru_cache(maxsize=_MATCH_CACHE)(self._may_publish)
        self.is_copied = functools.lru_cache(maxsize=_MATCH_CACHE)(self._is_copied)

    def _may_publish(self, app_id: str | None, topic: str) -> bool:
        """Return whether publisher ``app_id`` may publish to ``topic``.

        The canary topic needs no rights here; a publisher's broker user is limited to its topics.
        """
        if not self.publishers or topic == CANARY_TOPIC:
            return True
        words = _words(topic)
        return any(_matches_words(pattern, words) for pattern in self._rights.get(app_id or "", ()))

    def _find(self, topic: str) -> TopicPolicy | None:
        """Return the first policy whose pattern matches ``topic``; None if malformed or unmatched.

        No policy applies to topics of the fabric's own messages, whatever the patterns are.
        """
        if not is_topic(topic):
            return None
        words = _words(topic)
        if words[0] == CONTROL_WORD:
            return None
        return next((p for pattern, p in self._split if _matches_words(pattern, words)), None)

    def _is_copied(self, topic: str) -> bool:
        """Return whether a pattern of a copied class matches ``topic``: brokers' bindings are these
        patterns, and ignore that an earlier entry may have made the topic silver."""
        words = _words(topic)
        return any(_matches_words(pattern, words) for pattern in self._copied)

    def known(self, topic: str) -> TopicPolicy:
        """Return the policy of a topic that was found before: the table doesn't change."""
        policy = self.find(topic)
        assert policy is not None
        return policy

    def of_any(self, topic: str) -> TopicPolicy | None:
        """Return the policy as :meth:`find`, also of the fabric's own topic that is stored."""
        return self._own if topic == REVOKED else self.find(topic)


def load_topics(path: Path) -> TopicTable:
    """Read ``topics.toml``; ConfigError names the entry and its fault."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as exc:
        raise ConfigError(f"{path}: {exc}") from exc
    return parse_topics(document, source=str(path))


def parse_topics(document: Mapping[str, Any], *, source: str = "topics.toml") -> TopicTable:
    """Return the table of a parsed topics.toml; ConfigError if it is invalid."""
    unknown = set(document) - {"topic", "publisher", "tokens"}
    entries = document.get("topic")
    if unknown or not isinstance(entries, list) or not entries:
        raise ConfigError(
            f"{source}: expected one or more [[topic]] tables, [[publisher]] tables and [tokens] "
            "if you like, and nothing else"
        )
    policies = [_policy(entry, f"{source}: topic {n}") for n, entry in enumerate(entries, 1)]
    publishers = _publishers(document.get("publisher", []), source)
    ttl = _tokens_ttl(document.get("tokens", {}), f"{source}: tokens")
    return TopicTable(policies, publishers, tokens_ttl=ttl)


def _tokens_ttl(table: Any, where: str) -> float:
    if not isinstance(table, Mapping) or set(table) - {"ttl"}:
        raise ConfigError(f"{where}: expected ttl and nothing else")
    try:
        return parse_duration(table["ttl"]) if "ttl" in table else TOKENS_TTL
    except (TypeError, ValueError) as exc:
        raise ConfigError(f"{where}: ttl: {exc}") from exc


def _publishers(entries: Any, source: str) -> list[PublisherRights]:
    if not isinstance(entries, list):
        raise ConfigError(f"{source}: write [[publisher]], with two brackets")
    found = [_rights(entry, f"{source}: publisher {n}") for n, entry in enumerate(entries, 1)]
    names = [rights.app_id for rights in found]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"{source}: publisher {name!r} is there twice")
    return found


def _rights(entry: Any, where: str) -> PublisherRights:
    if not isinstance(entry, Mapping):
        raise ConfigError(f"{where}: expected a table, got {entry!r}")
    unknown = set(entry) - {"app_id", "topics"}
    if unknown:
        raise ConfigError(f"{where}: unknown field {sorted(unknown)[0]!r}")
    app_id, topics = entry.get("app_id"), entry.get("topics")
    if not isinstance(app_id, str) or not _APP_ID.fullmatch(app_id):
        raise ConfigError(f"{where}: app_id has A-Z a-z 0-9 _ and -, at most 64; got {app_id!r}")
    if app_id in _TAKEN:
        raise ConfigError(f"{where}: {app_id!r} isn't free; take another name")
    where = f"{where} ({app_id})"
    if not isinstance(topics, list) or not topics:
        raise ConfigError(f"{where}: topics must be a list of patterns")
    return PublisherRights(app_id, tuple(_pattern(topic, where) for topic in topics))


def _policy(entry: Any, where: str) -> TopicPolicy:
    if not isinstance(entry, Mapping):
        raise ConfigError(f"{where}: expected a table, got {entry!r}")
    unknown = set(entry) - {"pattern", "class", "access", "keep", "ttl", "slow", "latest"}
    if unknown:
        raise ConfigError(f"{where}: unknown field {sorted(unknown)[0]!r}")
    pattern = _pattern(entry.get("pattern"), where)
    where = f"{where} ({pattern})"
    try:
        ttl = parse_duration(entry.get("ttl", "7d"))
    except (TypeError, ValueError) as exc:
        raise ConfigError(f"{where}: ttl: {exc}") from exc
    return TopicPolicy(
        pattern=pattern,
        topic_class=cast(TopicClass, _one_of(entry, "class", TopicClass, "silver", where)),
        access=cast(Access, _one_of(entry, "access", Access, "public", where)),
        keep=_count(entry, "keep", 100, where),
        ttl=ttl,
        slow=cast(SlowPolicy, _one_of(entry, "slow", SlowPolicy, "drop_oldest", where)),
        latest=_flag(entry, "latest", where),
    )


def _pattern(pattern: Any, where: str) -> str:
    if not isinstance(pattern, str) or not is_pattern(pattern):
        raise ConfigError(f"{where}: pattern must be dotted words, '*' or '#'; got {pattern!r}")
    if pattern.split(".").count("#") > MAX_HASHES:
        raise ConfigError(
            f"{where}: pattern {pattern!r} has more than {MAX_HASHES} '#': RabbitMQ "
            "refuses such a binding from 4.3 on"
        )
    if pattern.split(".")[0] == CONTROL_WORD:
        raise ConfigError(f"{where}: {CONTROL_WORD!r} is the fabric's own word")
    return pattern


def _one_of(entry: Mapping[str, Any], field: str, allowed: Any, default: str, where: str) -> str:
    value = entry.get(field, default)
    if value not in get_args(allowed):
        raise ConfigError(f"{where}: {field} must be one of {', '.join(get_args(allowed))}")
    return cast(str, value)


def _count(entry: Mapping[str, Any], field: str, default: int, where: str) -> int:
    value = entry.get(field, default)
    if not is_whole(value, 0, 100_000):
        raise ConfigError(f"{where}: {field} must be a whole number from 0 to 100000")
    return value


def _flag(entry: Mapping[str, Any], field: str, where: str) -> bool:
    value = entry.get(field, False)
    if not isinstance(value, bool):
        raise ConfigError(f"{where}: {field} must be true or false")
    return value
