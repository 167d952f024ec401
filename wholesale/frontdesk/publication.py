"""The body of ``POST /publish`` as an AMQP message. Pure.

Only what AMQP couldn't carry is refused here; what a message may be is the router's decision,
so that a publisher hears the same over HTTP and AMQP.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any, Final

import orjson

from newsfabric.amqp.message import Message, Properties
from newsfabric.envelope import JSON, MAX_EXPIRATION, MAX_INTEGER, Limits
from newsfabric.numbers import is_whole
from wholesale.http import HttpProblem

_TEXTS: Final = ("key", "message_id", "app_id", "type", "traceparent")
_NUMBERS: Final = ("version", "expiration")
_FIELDS: Final = frozenset({"topic", "body", *_TEXTS, *_NUMBERS})
# AMQP 0-9-1 section 4.2.5.3: routing keys and text properties are short strings.
MAX_SHORT: Final = 255
#: What a header can carry, without spaces at its ends, which it would lose.
IDEMPOTENCY_KEY: Final = "[!-~]([ -~]{0,253}[!-~])?"
_IDEMPOTENCY_KEY: Final = re.compile(IDEMPOTENCY_KEY)
# What expires on its way to a router is answered by nobody, and the request would wait in vain.
MIN_EXPIRATION: Final = 1000


def parse_publication(
    document: bytes,
    *,
    idempotency_key: str | None,
    fresh_id: str,
    now_ms: int,
    limits: Limits,
    caller: str | None = None,
    login: str | None = None,
) -> Message:
    """The message that ``document`` asks for, without ``reply_to``; HttpProblem says what is wrong.

    It always has a message_id: ``idempotency_key`` (the header), else the field, else
    ``fresh_id``, so that whoever hears no answer can send it again. With ``caller`` its app_id
    is that and no other, and we, who log in as ``login``, vouch for it.
    """
    fields = _object(document)
    topic = _text(fields, "topic")
    if not topic:
        raise _bad("topic is required")
    if "body" not in fields:
        raise _bad("body is required")
    body = _body(fields["body"])
    if len(body) > limits.max_body_bytes:
        raise HttpProblem(
            413, "too_large", f"the body has {len(body)} bytes, at most {limits.max_body_bytes}"
        )
    properties = _properties(fields, idempotency_key, fresh_id, now_ms)
    return Message(topic, body, _as_caller(properties, caller, login))


def _body(value: Any) -> bytes:
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError as exc:
        # It reads four times as deep as it writes.
        raise _bad("the body is nested too deeply") from exc


def _as_caller(properties: Properties, caller: str | None, login: str | None) -> Properties:
    if caller is None:
        return properties
    if properties.app_id not in (None, "", caller):
        raise HttpProblem(403, "permission_denied", f"this key publishes as app_id {caller!r}")
    return dataclasses.replace(properties, app_id=caller, user_id=login)


def _properties(
    fields: Mapping[str, Any], idempotency_key: str | None, fresh_id: str, now_ms: int
) -> Properties:
    headers: dict[str, Any] = {
        "key": _text(fields, "key"),
        "version": _number(fields, "version", 0, MAX_INTEGER),
        "traceparent": _text(fields, "traceparent"),
        "timestamp_in_ms": now_ms,
    }
    expiration = _number(fields, "expiration", MIN_EXPIRATION, MAX_EXPIRATION)
    return Properties(
        content_type=JSON,
        headers={name: value for name, value in headers.items() if value is not None},
        message_id=_message_id(_text(fields, "message_id"), idempotency_key) or fresh_id,
        app_id=_text(fields, "app_id"),
        type=_text(fields, "type"),
        expiration=None if expiration is None else str(expiration),
    )


def _object(document: bytes) -> dict[str, Any]:
    try:
        fields = orjson.loads(document)
    except orjson.JSONDecodeError as exc:
        raise _bad(f"not JSON: {exc}") from exc
    if not isinstance(fields, dict):
        raise _bad("expected a JSON object")
    unknown = sorted(fields.keys() - _FIELDS)
    if unknown:
        raise _bad(f"unknown field {unknown[0][:60]!r}; there are {', '.join(sorted(_FIELDS))}")
    return fields


def _message_id(field: str | None, header: str | None) -> str | None:
    if header is not None and not _IDEMPOTENCY_KEY.fullmatch(header):
        raise _bad("Idempotency-Key must be 1 to 255 characters of ASCII")
    if field and header and field != header:
        raise _bad("message_id and Idempotency-Key differ")
    return header or field


def _text(fields: Mapping[str, Any], name: str) -> str | None:
    value = fields.get(name)
    if value is None:
        return None
    if not isinstance(value, str):
        raise _bad(f"{name} must be a string")
    _check_length(name, value)
    return value


def _check_length(name: str, value: str) -> None:
    size = len(value.encode("utf-8", "surrogatepass"))
    if size > MAX_SHORT:
        raise _bad(f"{name} has {size} bytes, at most {MAX_SHORT}")


def _number(fields: Mapping[str, Any], name: str, lowest: int, highest: int) -> int | None:
    value = fields.get(name)
    if value is None:
        return None
    if not is_whole(value, lowest, highest):
        raise _bad(f"{name} must be a whole number from {lowest} to {highest}")
    return int(value)


def _bad(detail: str) -> HttpProblem:
    return HttpProblem(400, "bad_request", detail)
