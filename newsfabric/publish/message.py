"""A publisher's messages and their outcomes, as values. Pure."""

from __future__ import annotations

import dataclasses
import enum
import json
import math
import secrets
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, TypedDict

import orjson

from newsfabric.amqp.message import Message, Properties
from newsfabric.errors import Rejected
from newsfabric.messages.control import Receipt
from newsfabric.messages.envelope import DEFAULT_LIMITS

# Characters before a fault in a body that are shown with it.
_BESIDE: Final = 20
JSON: Final = "application/json"


class Options(TypedDict, total=False):
    """Options of one message beside its topic and body.

    ``message_id`` is generated if absent. ``expiration`` is in ms. ``receipt`` False waits only for
    a broker's confirm; ``copies`` is the number of regions it is published to at once. The default
    of both is set on the publisher.
    """

    key: str
    version: int
    message_id: str
    type: str
    expiration: int
    traceparent: str
    receipt: bool
    copies: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A message that arrived: ``routed``, or, without a receipt, taken by a broker.

    ``identity`` identifies the message, the same for every copy and repeat in every region: keep
    it, and compare it with the identity that readers see. ``id`` is the id that ``router`` of
    ``region`` gave it; readers may see the id of another router, above all for gold. All four are
    from the receipt, None without one; ``repeated`` is a hint that it had been routed before.
    """

    message_id: str
    routed: bool
    id: str | None = None
    identity: str | None = None
    region: str | None = None
    router: str | None = None
    repeated: bool = False


def make_message(topic: str, body: Any, options: Options, *, app_id: str, now_ms: int) -> Message:
    """Return the message in the fabric's form, without ``reply_to``.

    ``body`` as text or bytes is taken for JSON as it is; any other value is written as JSON.
    Rejected (``not_json``) if that has a lone surrogate, which UTF-8 can't encode, or a number that
    JSON doesn't have: an infinity or NaN.
    """
    headers: dict[str, Any] = {"timestamp_in_ms": now_ms}
    for name in ("key", "version", "traceparent"):
        if (value := options.get(name)) is not None:
            headers[name] = value
    expiration = options.get("expiration")
    message_id = options.get("message_id") or secrets.token_hex(16)
    properties = Properties(
        content_type=JSON,
        headers=headers,
        message_id=message_id,
        app_id=app_id,
        type=options.get("type"),
        expiration=None if expiration is None else str(expiration),
        timestamp=now_ms // 1000,
    )
    return Message(topic, _encode(body), properties)


def check_limits(message: Message) -> None:
    """Raise Rejected, in a router's words, for a ``message`` that would close channel or
    connection.

    A client broker closes the channel for a body of more than 128 KiB, and the connection for
    headers that don't fit into a frame. Routers refuse smaller messages than that.
    """
    size, most = len(message.body), DEFAULT_LIMITS.max_body_bytes
    if size > most:
        raise Rejected("too_large", f"{size} bytes, at most {most}; it was not sent")
    for name in ("key", "traceparent"):
        text = message.properties.headers.get(name)
        size = len(text.encode("utf-8", "surrogatepass")) if isinstance(text, str) else 0
        if size > DEFAULT_LIMITS.max_text_bytes:
            most = DEFAULT_LIMITS.max_text_bytes
            raise Rejected("bad_header", f"{name} has {size} bytes, at most {most}")


def published(receipt: Receipt | None, message_id: str) -> Published:
    """Return the outcome in ``receipt``, None for a mere confirm; Rejected for a rejection."""
    if receipt is None:
        return Published(message_id=message_id, routed=False)
    if receipt.status == "rejected":
        raise Rejected(receipt.reason or "?", receipt.detail or "")
    return Published(
        message_id=message_id,
        routed=True,
        id=receipt.id,
        identity=receipt.identity,
        region=receipt.region,
        router=receipt.router,
        repeated=receipt.repeated,
    )


def pauses(first: float, last: float) -> Iterator[float]:
    """Yield the seconds to wait for a reply each time: ``first``, then doubled up to ``last``."""
    pause = first
    while True:
        yield pause
        pause = min(2 * pause, last)


def _encode(body: Any) -> bytes:
    if isinstance(body, bytes):
        return body
    try:
        written = body.encode() if isinstance(body, str) else orjson.dumps(body)
    except (UnicodeEncodeError, orjson.JSONEncodeError):
        # Half of an emoji, where a headline was cut: orjson doesn't give the place.
        text = body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)
        place = next((n for n, c in enumerate(text) if "\ud800" <= c <= "\udfff"), None)
        if place is None:
            raise
        beside = text[max(0, place - _BESIDE) : place]
        raise Rejected(
            "not_json", f"a lone surrogate at character {place} of the body, after {beside!r}"
        ) from None
    # orjson writes null for infinities and NaN: few bodies need the check.
    if not isinstance(body, str) and b"null" in written and (where := _endless(body, "body")):
        raise Rejected("not_json", f"{where}: JSON has no infinity and no NaN")
    return written


def _endless(value: Any, name: str) -> str | None:
    """Return place and value of a number in ``value``, called ``name``, that JSON doesn't have."""
    if isinstance(value, float):
        return None if math.isfinite(value) else f"{name} is {value}"
    inner: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, Mapping):
        inner = value.items()
    elif isinstance(value, list | tuple):
        inner = enumerate(value)
    elif isinstance(value, enum.Enum):
        return _endless(value.value, name)
    elif dataclasses.is_dataclass(value):
        inner = ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))
    found = (_endless(each, f"{name}.{place}") for place, each in inner)
    return next(filter(None, found), None)
