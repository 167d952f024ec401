"""Control messages of the fabric as values: ticks, canaries, load reports, drains, receipts.

Each ``decode_*`` raises ValueError for any message that ``encode_*`` can't have made, so a
stranger's message on a control key is counted and dropped, not believed.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Final, Literal

import orjson

from newsfabric.amqp.message import Message, Properties
from newsfabric.json_fields import mapping, number, text, whole
from newsfabric.messages.envelope import MAX_MS
from newsfabric.topics import CONTROL_WORD, REVOKED

TICK: Final = "tick"
CANARY: Final = "canary"
LOAD: Final = "load"
DRAIN: Final = "drain"
RECEIPT: Final = "receipt"
# Frontdesks keep reports of a thousand boxes, each of which may be a stranger's.
MAX_BYTES: Final = 64 * 1024

# Ten times a gateway's intended capacity. A box may lie, and readers are sent by capacity.
MAX_READERS: Final = 1_000_000

BoxState = Literal["starting", "ready", "draining"]
_BOX_STATES: Final[tuple[BoxState, ...]] = ("starting", "ready", "draining")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """A router's heartbeat, once a second, and 0.2 s after a message without a successor.

    ``seq`` is its last number; all numbers up to ``low`` are settled. ``sent_ms`` is its clock.
    """

    origin: str
    router: str
    epoch: int
    seq: int
    sent_ms: int
    low: int = 0


def tick_key(origin: str) -> str:
    """Return the routing key of ticks of region ``origin``; ``tick_key("*")`` binds them all."""
    return f"{CONTROL_WORD}.{TICK}.{origin}"


def encode_tick(tick: Tick) -> Message:
    """Return ``tick`` as a message for exchanges postoffice and outbound."""
    return _message(tick_key(tick.origin), TICK, dataclasses.asdict(tick))


def decode_tick(message: Message) -> Tick:
    """Return the tick in ``message``; ValueError if it isn't one."""
    fields = fields_of(message, TICK)
    epoch, sent_ms = whole(fields, "epoch"), whole(fields, "sent_ms")
    for name, ms in (("epoch", epoch), ("sent_ms", sent_ms)):
        if ms > MAX_MS:
            raise ValueError(f"{name}: {ms} is no time")
    return Tick(
        origin=text(fields, "origin"),
        router=text(fields, "router"),
        epoch=epoch,
        seq=whole(fields, "seq"),
        sent_ms=sent_ms,
        # Routers of the release before don't send ``low``.
        low=whole(fields, "low") if "low" in fields else 0,
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Canary:
    """A message that a keeper of ``region`` sends through its shovels, to see it arrive.

    ``token`` is the sender's own, so that no one else can forge it; ``sent_ms`` is its monotonic
    clock, with a meaning to the sender alone.
    """

    region: str
    token: str
    sent_ms: int


def canary_key(region: str) -> str:
    """Return the routing key of canaries of ``region``; ``canary_key("#")`` binds them all."""
    return f"{CONTROL_WORD}.{CANARY}.{region}"


def is_canary(message: Message) -> bool:
    """Return whether ``message`` looks like a canary, for services that ignore canaries."""
    return message.properties.type == CANARY and message.topic.startswith(_CANARIES)


def encode_canary(canary: Canary, *, user_id: str | None = None, key: str = "") -> Message:
    """Return ``canary`` as a message for any exchange that a shovel takes from.

    ``user_id`` is the login of its sender: the broker accepts no other name. ``key`` is the queue
    that it is for, if it is sent to one (:func:`canary_key` has no effect there).
    """
    message = _message(key or canary_key(canary.region), CANARY, dataclasses.asdict(canary))
    properties = dataclasses.replace(message.properties, user_id=user_id)
    return dataclasses.replace(message, properties=properties)


def decode_canary(message: Message) -> Canary:
    """Return the canary in ``message``; ValueError if it isn't one."""
    fields = fields_of(message, CANARY)
    return Canary(
        region=text(fields, "region"),
        token=text(fields, "token"),
        sent_ms=whole(fields, "sent_ms"),
    )


_CANARIES: Final = canary_key("")
_LOADS: Final = f"{CONTROL_WORD}.{LOAD}."


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LoadReport:
    """A box's report of its own state, each second, over exchange ``upstream``.

    ``deliveries_per_second`` and ``connects_per_second`` are of the last second.
    """

    region: str
    box: str
    state: BoxState
    connections: int
    capacity: int
    deliveries_per_second: float
    connects_per_second: float
    sockjs_url: str
    websocket_url: str
    sse_url: str
    sent_ms: int


def load_key(region: str, box: str) -> str:
    """Return the routing key of a box's load reports; ``load_key("*", "*")`` binds them all."""
    return f"{CONTROL_WORD}.{LOAD}.{region}.{box}"


def is_load(message: Message) -> bool:
    """Return whether ``message`` looks like a load report."""
    return message.properties.type == LOAD and message.topic.startswith(_LOADS)


def encode_load(report: LoadReport) -> Message:
    """Return ``report`` as a message for exchange upstream."""
    return _message(load_key(report.region, report.box), LOAD, dataclasses.asdict(report))


def decode_load(message: Message) -> LoadReport:
    """Return the load report in ``message``; ValueError if it isn't one."""
    fields = fields_of(message, LOAD)
    return LoadReport(
        region=text(fields, "region"),
        box=text(fields, "box"),
        state=_box_state(fields),
        connections=whole(fields, "connections", MAX_READERS),
        capacity=whole(fields, "capacity", MAX_READERS),
        deliveries_per_second=number(fields, "deliveries_per_second"),
        connects_per_second=number(fields, "connects_per_second"),
        sockjs_url=text(fields, "sockjs_url"),
        websocket_url=text(fields, "websocket_url"),
        sse_url=text(fields, "sse_url"),
        sent_ms=whole(fields, "sent_ms"),
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DrainOrder:
    """A scaler's order to one box: send your readers elsewhere, and leave.

    ``by`` is the scaler, for the box's log; ``sent_ms`` is its clock.
    """

    region: str
    box: str
    by: str
    sent_ms: int


# An order that was queued for a box that was away must not reach the box after its restart.
DRAIN_EXPIRES_MS: Final = 10_000


def drain_key(region: str, box: str) -> str:
    """Return the routing key of a box's orders to drain; ``drain_key("*", "*")`` binds them all."""
    return f"{CONTROL_WORD}.{DRAIN}.{region}.{box}"


def is_drain(message: Message) -> bool:
    """Return whether ``message`` looks like an order to drain."""
    return message.properties.type == DRAIN and message.topic.startswith(_DRAINS)


def encode_drain(drain: DrainOrder, *, user_id: str | None = None) -> Message:
    """Return ``drain`` as a message for exchange ``orders`` of the region's core.

    ``user_id`` is the login of its sender: the broker accepts no other name.
    """
    message = _message(drain_key(drain.region, drain.box), DRAIN, dataclasses.asdict(drain))
    properties = dataclasses.replace(
        message.properties, expiration=str(DRAIN_EXPIRES_MS), user_id=user_id
    )
    return dataclasses.replace(message, properties=properties)


def decode_drain(message: Message) -> DrainOrder:
    """Return the order in ``message``; ValueError if it is none, or its routing key is wrong."""
    fields = fields_of(message, DRAIN)
    drain = DrainOrder(
        region=text(fields, "region"),
        box=text(fields, "box"),
        by=text(fields, "by"),
        sent_ms=whole(fields, "sent_ms"),
    )
    if message.topic != drain_key(drain.region, drain.box):
        raise ValueError("a drain under another's key")
    return drain


_DRAINS: Final = f"{CONTROL_WORD}.{DRAIN}."


# The reason in a receipt when a message was dropped for lack of room: it may be sent again.
OVERLOAD: Final = "overload"
# The reason in a receipt when the publisher may not publish to the topic.
PUBLISHER_NOT_ALLOWED: Final = "publisher_not_allowed"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """A router's reply to a publisher that set ``reply_to``.

    ``status`` is ``routed`` (stored and published to the fabric, with ``id`` and ``identity``) or
    ``rejected`` (with ``reason`` and ``detail``). ``identity`` is the same for every copy and
    repeat, ``id`` is this router's. ``repeated`` marks a message that this router had routed
    before: its first id stands.
    """

    status: Literal["routed", "rejected"]
    region: str
    router: str
    topic: str
    message_id: str | None = None
    id: str | None = None
    identity: str | None = None
    reason: str | None = None
    detail: str | None = None
    repeated: bool = False


def encode_receipt(receipt: Receipt, *, reply_to: str, correlation_id: str | None) -> Message:
    """Return ``receipt`` for exchange ``receipts``, addressed by the publisher's ``reply_to``."""
    body = {k: v for k, v in dataclasses.asdict(receipt).items() if v is not None}
    return _message(reply_to, RECEIPT, body, correlation_id=correlation_id)


def decode_receipt(message: Message) -> Receipt:
    """Return the receipt in ``message``; ValueError if it isn't one."""
    fields = fields_of(message, RECEIPT)
    status = text(fields, "status")
    if status not in ("routed", "rejected"):
        raise ValueError(f"unknown status {status!r}")
    texts = {
        name: _optional_text(fields, name)
        for name in ("message_id", "id", "identity", "reason", "detail")
    }
    return Receipt(
        status="routed" if status == "routed" else "rejected",
        region=text(fields, "region"),
        router=text(fields, "router"),
        topic=text(fields, "topic"),
        repeated=fields.get("repeated") is True,
        **texts,
    )


def revocation(user: str, at_ms: int) -> Message:
    """Return a message for a core's ``intake``: ``user``'s tokens from until ``at_ms`` are void."""
    properties = Properties(
        content_type="application/json",
        app_id=CONTROL_WORD,
        message_id=f"revoked-{user}-{at_ms}",
    )
    return Message(REVOKED, orjson.dumps({"user": user, "at": at_ms}), properties)


def _message(
    key: str, kind: str, fields: dict[str, Any], *, correlation_id: str | None = None
) -> Message:
    properties = Properties(
        content_type="application/json", type=kind, correlation_id=correlation_id
    )
    return Message(key, orjson.dumps(fields), properties)


def fields_of(message: Message, kind: str) -> dict[str, Any]:
    """Return the JSON object in ``message``, which must be a ``kind``; ValueError if it isn't."""
    if message.properties.type != kind:
        raise ValueError(f"not a {kind}: type is {message.properties.type!r}")
    if len(message.body) > MAX_BYTES:
        raise ValueError(f"not a {kind}: {len(message.body)} bytes")
    try:
        fields = orjson.loads(message.body)
    except orjson.JSONDecodeError as exc:
        raise ValueError(f"not a {kind}: {exc}") from exc
    return mapping(fields, f"not a {kind}: the body")


def _box_state(fields: dict[str, Any]) -> BoxState:
    for state in _BOX_STATES:
        if fields.get("state") == state:
            return state
    raise ValueError(f"state must be one of {', '.join(_BOX_STATES)}")


def _optional_text(fields: dict[str, Any], name: str) -> str | None:
    return None if fields.get(name) is None else text(fields, name)
