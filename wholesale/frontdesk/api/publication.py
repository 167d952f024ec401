"""The body of ``POST /publish`` as AMQP messages. Pure.

Only messages that AMQP couldn't carry are refused here. All other decisions are the router's, so
that HTTP and AMQP have the same rules. :func:`rehearse` predicts the router's decision.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import orjson

from newsfabric.amqp.message import SHOVELLED, Message, Properties
from newsfabric.errors import Rejected
from newsfabric.messages.control import PUBLISHER_NOT_ALLOWED, Receipt
from newsfabric.messages.envelope import (
    DEFAULT_LIMITS,
    JSON,
    MAX_EXPIRATION,
    MAX_INTEGER,
    MessageLimits,
    identity_text,
    receive,
)
from newsfabric.numbers import is_whole
from newsfabric.topics import TopicTable
from wholesale.common.acceptance import check_rights, policy_of
from wholesale.common.http import HttpProblem

_TEXTS: Final = ("key", "message_id", "app_id", "type", "traceparent")
_NUMBERS: Final = ("version", "expiration")
_FIELDS: Final = frozenset({"topic", "body", *_TEXTS, *_NUMBERS})
# AMQP 0-9-1 section 4.2.5.3: routing keys and text properties are short strings.
MAX_SHORT: Final = DEFAULT_LIMITS.max_text_bytes
#: Any text that a header can carry, without spaces at its ends, which would be stripped.
IDEMPOTENCY_KEY: Final = "[!-~]([ -~]{0,253}[!-~])?"
_IDEMPOTENCY_KEY: Final = re.compile(IDEMPOTENCY_KEY)
# A message that expires on its way to a router gets no receipt, so the request would wait in vain.
MIN_EXPIRATION: Final = 1000


#: Messages in one request.
MOST_AT_ONCE: Final = 100


def parse_document(document: bytes) -> Any:
    """Return a request's JSON: one message's fields, or a list of them; or HttpProblem."""
    if not document.strip():
        raise _bad('the request has no body: curl -d \'{"topic": …, "body": …}\'')
    try:
        return orjson.loads(document)
    except orjson.JSONDecodeError as exc:
        raise _bad(f"not JSON: {exc}") from exc


def check_many(documents: list[Any], *, idempotency_key: str | None) -> None:
    """Raise HttpProblem unless one request may have as many as ``documents``."""
    if not 1 <= len(documents) <= MOST_AT_ONCE:
        raise _bad(f"{len(documents)} messages in one request; it takes 1 to {MOST_AT_ONCE}")
    if idempotency_key is not None:
        raise _bad("Idempotency-Key names one message: give each of several its message_id")


def check_query(names: Iterable[str]) -> None:
    """Raise HttpProblem for unknown parameters: with a misspelt dry_run it would publish."""
    if unknown := sorted(set(names) - {"dry_run"}):
        raise _bad(f"unknown parameter {unknown[0][:60]!r}; there is dry_run. Nothing was sent")


def parse_dry_run(values: Sequence[str]) -> bool:
    """Return whether ``?dry_run`` is set; raise HttpProblem for unknown ``values``."""
    if not set(values) <= {"", "1", "true", "0", "false"}:
        raise _bad("dry_run must be true or false, or nothing")
    return bool(values) and values[-1] not in ("0", "false")


def parse_publication(
    document: Any,
    *,
    idempotency_key: str | None,
    fresh_id: str,
    now_ms: int,
    limits: MessageLimits,
    caller: str | None = None,
    login: str | None = None,
) -> Message:
    """Return the message that ``document``, parsed JSON, asks for; else raise HttpProblem.

    It has no ``reply_to``, and always a message_id: ``idempotency_key`` (the header), else the
    field, else ``fresh_id``. So after a lost reply it can be sent again. With ``caller`` no other
    app_id is allowed, and this frontdesk, logged in as ``login``, vouches for it.
    """
    fields = _checked(document)
    topic = _text(fields, "topic")
    if not topic:
        raise _bad('topic is required, such as {"topic": "news.breaking", "body": …}')
    if "body" not in fields:
        raise _bad("body is required: any JSON value, which readers get")
    body = _body(fields["body"])
    if len(body) > limits.max_body_bytes:
        raise HttpProblem(
            413, "too_large", f"the body has {len(body)} bytes, at most {limits.max_body_bytes}"
        )
    properties = _properties(fields, idempotency_key, fresh_id, now_ms)
    return Message(topic, body, _as_caller(properties, caller, login))


def rehearse(
    message: Message, topics: TopicTable, limits: MessageLimits, *, now_ms: int
) -> Receipt:
    """Return the receipt that a router would send for ``message`` now, if a shovel brought it.

    A receipt "routed" has an identity and no id. Repeats and overload are unknown here.
    """
    properties = message.properties
    headers = {**properties.headers, SHOVELLED: []}
    arrived = dataclasses.replace(
        message, properties=dataclasses.replace(properties, headers=headers)
    )
    receipt = functools.partial(Receipt, region="", router="", topic=message.topic)
    try:
        submission = receive(arrived, now_ms=now_ms, limits=limits)
        policy_of(topics, submission.topic)
        check_rights(
            topics,
            app_id=submission.app_id,
            topic=submission.topic,
            user_id=properties.user_id,
        )
    except Rejected as exc:
        return receipt(status="rejected", reason=exc.reason, detail=exc.detail)
    return receipt(status="routed", identity=identity_text(submission.identity))


def in_curls_words(receipt: Receipt, message: Message, topics: TopicTable) -> str:
    """Return the reason of a rejection, for a client that uses HTTP and has no AMQP login."""
    app_id = message.properties.app_id
    if receipt.reason == PUBLISHER_NOT_ALLOWED and topics.may_publish(app_id, message.topic):
        # The publisher may publish there; so the cause is that nobody vouches for it.
        return (
            f"publishing as {app_id} needs an API key bound to {app_id}: a line "
            f"`{app_id} KEY` in the frontdesk's --api-key-file, sent as X-API-Key"
        )
    return receipt.detail or ""


def _body(value: Any) -> bytes:
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError as exc:
        # orjson parses four times as deep as it writes.
        raise _bad("the body is nested too deeply") from exc


def _as_caller(properties: Properties, caller: str | None, login: str | None) -> Properties:
    if caller is None:
        return properties
    if properties.app_id not in (None, "", caller):
        raise HttpProblem(
            403,
            "permission_denied",
            f"this API key is bound to {caller}: leave app_id out, or set it to {caller}",
        )
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


def _checked(fields: Any) -> dict[str, Any]:
    if not isinstance(fields, dict):
        raise _bad("expected a JSON object with topic and body, or a list of them")
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
