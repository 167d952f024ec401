"""The content of ``newsfabric trace``: one message's path, as each process remembers it. Pure.

Not OpenTelemetry's spans, which are newsfabric.tracing.otel_spans and are sent by
newsfabric.tracing.otel_tracer.

Routers and gateways answer ``/trace/ID`` from a ring of their last messages, routers
``/stored/ID?topic=TOPIC`` from their store, where messages are found by topic and time. Every time
is by the clock of the process that reports it: between machines the order of hops is as exact as
their clocks, within one process it is exact.

The decision that a reader may question: no data are collected while messages pass, and no span is
sent. Traces are rare and messages frequent, so the work is done on request.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from newsfabric.messages.envelope import identity_of, identity_of_id, identity_text

# Candidates shown for an ambiguous ID.
_SHOWN: Final = 10


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TraceAnswer:
    """A process that was asked, and its ``answer``, None without a reply."""

    kind: str
    name: str
    region: str
    answer: Mapping[str, Any] | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """All known facts of one message.

    ``stored`` maps regions to their stores' rows (None: no reply; without a topic no store is
    asked), ``rejected`` holds messages that routers refused
    (:func:`operations.cli.messages.rejection`).
    """

    asked: Sequence[TraceAnswer]
    stored: Mapping[str, Sequence[Mapping[str, Any]] | None]
    rejected: Sequence[Mapping[str, Any]]


def identities(asked: Iterable[TraceAnswer]) -> dict[str, Mapping[str, Any]]:
    """Return identity → a sighting of it: the messages that the ID may mean."""
    return {str(seen["identity"]): seen for _, seen in _sightings(asked)}


def has_missing(asked: Iterable[TraceAnswer]) -> bool:
    """Return whether a process that replied doesn't know the message."""
    return any(who.answer is not None and not who.answer["sightings"] for who in asked)


def topic_of(asked: Iterable[TraceAnswer]) -> str | None:
    """Return the topic of the message, if any process remembers it."""
    return next((seen["topic"] for _, seen in _sightings(asked)), None)


def ids(asked: Iterable[TraceAnswer], text: str) -> list[str]:
    """Return the ids under which the message may be stored: the ids seen, and ``text``."""
    found = {seen["id"] for _, seen in _sightings(asked)}
    found |= {copy["id"] for _, seen in _sightings(asked) for copy in seen["copies"]}
    return sorted({each for each in found if each} | ({text.lower()} if is_id(text) else set()))


def is_id(text: str) -> bool:
    """Return whether ``text`` is a whole id."""
    try:
        identity_of_id(text.lower())
    except ValueError:
        return False
    return True


def refusals(text: str, rejected: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the messages of ``rejected`` that ``text`` names: by message_id, or by the identity
    that the message would have."""
    return [each for each in rejected if text == each["message_id"] or _would_be(each, text)]


def trace(text: str, evidence: Evidence) -> dict[str, Any]:
    """Return the document of ``newsfabric trace --json``; keys are added, never changed."""
    known = identities(evidence.asked)
    rows = [row for found in evidence.stored.values() for row in found or ()]
    message = next(iter(known.values()), None) or next(iter(rows), None) or {}
    hops = sorted(_hops(evidence.asked), key=lambda hop: hop["at_ms"])
    published_ms = message.get("published_ms")
    if published_ms is not None and hops:
        hops.insert(0, _published(message, published_ms))
    for hop in hops:
        hop["after_ms"] = None if published_ms is None else hop["at_ms"] - published_ms
    identity = message.get("identity")
    if identity is None and rows:
        identity = identity_text(identity_of_id(str(rows[0]["id"])))
    return {
        "query": text,
        "found": bool(hops or rows or evidence.rejected),
        "identity": identity,
        "topic": message.get("topic"),
        "message_id": message.get("message_id"),
        "published_ms": published_ms,
        "ids": ids(evidence.asked, text) if hops or rows else [],
        "hops": hops,
        "stored": {
            region: None if found is None else [dict(row) for row in found]
            for region, found in evidence.stored.items()
        },
        "rejected": [dict(each) for each in evidence.rejected],
        "not_seen": list(_not_seen(evidence.asked)),
        "remembered": [
            {
                "kind": each.kind,
                "name": each.name,
                "messages": each.answer["remembered"],
                "since_ms": each.answer["since_ms"],
            }
            for each in evidence.asked
            if each.answer is not None
        ],
    }


def candidates(asked: Iterable[TraceAnswer]) -> list[dict[str, Any]]:
    """Return the messages that an ambiguous ID may mean."""
    found = list(identities(asked).values())[:_SHOWN]
    return [{name: each[name] for name in ("identity", "topic", "message_id")} for each in found]


def hop_text(hop: Mapping[str, Any]) -> str:
    """Return a hop in words."""
    match hop["step"]:
        case "published":
            return "published (the publisher's clock, else its broker's)"
        case "stored":
            return "stored"
        case "shed":
            return "dropped: bronze, and the store was behind"
        case "expired":
            return "given up: it had waited for too long"
        case "routed":
            return f"confirmed by postoffice and outbound as number {hop['seq']}"
        case "delivered":
            return "given to its readers"
    way = f"by {', '.join(hop['way'])}" if hop["way"] else "straight from its exchange"
    what = f"{hop['router']} number {hop['seq']} came" if hop["router"] else "came"
    return f"{what} {way}: {_outcome(hop)}"


def _outcome(hop: Mapping[str, Any]) -> str:
    if hop["won"]:
        return "first" if hop["copies"] == 1 else f"won, first of {hop['copies']}"
    return f"a copy, {hop['behind_ms']} ms behind"


def _published(message: Mapping[str, Any], at_ms: int) -> dict[str, Any]:
    return _hop(at_ms, "published", TraceAnswer(kind="publisher", name="", region="", answer=None))


def _hops(asked: Iterable[TraceAnswer]) -> Iterator[dict[str, Any]]:
    for who, seen in _sightings(asked):
        first_ms = seen["copies"][0]["at_ms"]
        for n, copy in enumerate(seen["copies"]):
            yield _hop(
                copy["at_ms"],
                "arrived",
                who,
                way=list(copy["way"]),
                won=n == 0,
                behind_ms=copy["at_ms"] - first_ms,
                copies=seen["copies_in_all"],
                router=copy["router"],
                seq=copy["seq"],
                path=list(copy["path"]),
            )
        for step, at_ms in seen["steps"].items():
            yield _hop(at_ms, step, who, seq=seen["seq"])


def _hop(at_ms: int, step: str, who: TraceAnswer, **more: Any) -> dict[str, Any]:
    nothing = {"way": None, "won": None, "behind_ms": None, "copies": None}
    nothing |= {"router": None, "seq": None, "path": None}
    place = {"region": who.region, "kind": who.kind, "name": who.name}
    return {"at_ms": at_ms, "step": step, **place, **nothing, **more}


def _sightings(asked: Iterable[TraceAnswer]) -> Iterator[tuple[TraceAnswer, Mapping[str, Any]]]:
    for who in asked:
        for seen in (who.answer or {}).get("sightings", []):
            yield who, seen


def _not_seen(asked: Iterable[TraceAnswer]) -> Iterator[dict[str, Any]]:
    known = list(asked)
    routed_in = {who.region for who, _ in _sightings(known) if who.kind == "router"}
    for who in known:
        if who.answer is None:
            why = "it doesn't answer"
        elif who.answer["sightings"]:
            continue
        elif who.kind == "router" and who.region in routed_in:
            # Routers of a region compete: only one of them has the message.
            continue
        elif who.kind == "router":
            why = "no router of the region had it; only gold goes to other regions' routers"
        else:
            why = "it didn't come, or too long ago"
        yield {"kind": who.kind, "name": who.name, "region": who.region, "why": why}


def _would_be(rejection: Mapping[str, Any], text: str) -> bool:
    message_id, app_id = rejection["message_id"], rejection["app_id"]
    if not message_id:
        return False
    identity = identity_of(
        app_id=app_id or None, message_id=message_id, topic="", published_ms=None, body=b""
    )
    return identity_text(identity) == text.lower()
