"""Messages as the command line takes and prints them. Pure, but for reading ``@file``."""

from __future__ import annotations

import base64
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, cast

import orjson

from newsfabric.amqp import Message
from newsfabric.errors import ConfigError
from newsfabric.publish import Options, message
from operations.cli.options import line_to_copy

# AMQP 0-9-1 section 4.2.5.3: a short string, such as a routing key, has at most 255 octets.
_MAX_SHORT: Final = 255
_HEADLINES: Final = ("headline", "title", "summary")
_SHOWN: Final = 120


def read_body(argument: str) -> bytes:
    """Return the body in a command's argument: the argument, ``-`` for stdin, ``@FILE`` for a file.

    ConfigError for a file that can't be read. The bytes aren't checked: the fabric judges them.
    """
    if argument == "-":
        return sys.stdin.buffer.read()
    if not argument.startswith("@"):
        # The shell's bytes, even if they aren't UTF-8: the fabric decides which it takes.
        return argument.encode("utf-8", "surrogateescape")
    try:
        return Path(argument[1:]).read_bytes()
    except OSError as exc:
        raise ConfigError(f"{argument[1:]}: {exc.strerror}") from exc


def make_message(
    topic: str,
    body: bytes,
    *,
    message_id: str,
    app_id: str,
    now_ms: int,
    key: str | None = None,
    version: int | None = None,
    type: str | None = None,
) -> Message:
    """Make a publisher's message; ConfigError for texts that are too long for AMQP."""
    for name, text in (("topic", topic), ("message id", message_id), ("app id", app_id)):
        if (size := len(text.encode("utf-8", "surrogateescape"))) > _MAX_SHORT:
            raise ConfigError(f"the {name} has {size} bytes; AMQP takes at most {_MAX_SHORT}")
    options_given: dict[str, Any] = {
        "message_id": message_id,
        "key": key,
        "version": version,
        "type": type,
    }
    options = cast(
        Options, {name: value for name, value in options_given.items() if value is not None}
    )
    return message.make_message(topic, body, options, app_id=app_id, now_ms=now_ms)


def headline(body: Any) -> str:
    """Return a body's headline for a person, else its beginning."""
    if isinstance(body, Mapping):
        for name in _HEADLINES:
            if isinstance(value := body.get(name), str) and value:
                return _short(value)
    try:
        return _short(orjson.dumps(body).decode())
    except orjson.JSONEncodeError:
        # Accepted by a release with a larger newsfabric.messages.envelope.MAX_DEPTH.
        return "(nested too deeply to be shown)"


def message_line(fields: Mapping[str, Any], identity: str | None) -> str:
    """Return a ``message`` push as one line: time of publishing, topic, headline, identity."""
    published = fields.get("published")
    when = _time(published) if isinstance(published, int) else "--:--:--"
    version = f" (v{fields['version']})" if fields.get("version") is not None else ""
    line = f"{when}  {fields.get('topic')}  {headline(fields.get('body'))}{version}"
    return f"{line}  {identity}" if identity else line


def trace_hint(identity: str) -> str:
    """Return a line with the command that shows the way of the message with this ``identity``."""
    return f"its way: {line_to_copy(f'newsfabric trace {identity}')}"


def rejection(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Translate a rejected message of the management API into the fabric's words."""
    properties = entry.get("properties")
    properties = properties if isinstance(properties, Mapping) else {}
    headers = properties.get("headers")
    headers = headers if isinstance(headers, Mapping) else {}
    return {
        "rejected_at": headers.get("rejected_at"),
        "reason": headers.get("reason"),
        "detail": headers.get("detail"),
        "topic": headers.get("topic"),
        "region": headers.get("region"),
        "router": headers.get("router"),
        "app_id": properties.get("app_id"),
        "message_id": properties.get("message_id"),
        "bytes": entry.get("payload_bytes"),
        "body": _text_body(entry),
    }


def rejection_line(found: Mapping[str, Any]) -> str:
    """Return the result of :func:`rejection` as one line for a person."""
    at = found["rejected_at"]
    when = _time(at) if isinstance(at, int) else "--:--:--"
    by = f" by {found['app_id']}" if found["app_id"] else ""
    size = f"{found['bytes']} bytes"
    return f"{when}  {found['reason']}: {found['detail']}  ({found['topic']}, {size}{by})"


def _text_body(entry: Mapping[str, Any]) -> str:
    """Return the original bytes as text, with escapes for bytes that aren't UTF-8."""
    payload = str(entry.get("payload", ""))
    if entry.get("payload_encoding") != "base64":
        return payload
    return base64.b64decode(payload).decode("utf-8", "backslashreplace")


def _time(ms: int) -> str:
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).astimezone().strftime("%H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return "--:--:--"


def _short(text: str) -> str:
    # One line, without control characters of a terminal.
    line = "".join(c if c.isprintable() else " " for c in text)
    return line if len(line) <= _SHOWN else line[: _SHOWN - 1] + "…"
