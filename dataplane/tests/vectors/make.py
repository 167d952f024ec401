"""Write the decisions of the Tornado engine about many inputs, for the crate's tests to compare.

Run ``python dataplane/tests/vectors/make.py`` from the top of the tree when the
engine's framing changes; an argument names another folder than this one. Lines are fields
in hex, separated by spaces; the seed is fixed.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import orjson

from gateway.wire.frames import BINARY, CLOSE, PING, PONG, TEXT, sockjs_element
from gateway.wire.rfc6455 import FrameParser

FOLDER: Final = Path(__file__).parent
MAX_BYTES: Final = 1000

_random = random.Random(6455)  # noqa: S311 - no secret

_PIECES: Final = [
    "a", "é", "\u2028", "\ufeff", "\U0001f600", '"', "\\", "/", "\x00", "\x1f", "\x7f", "\u0300",
    "\u02ff", "\ufffe", "\uffff", "\ud7ff", "\ue000", "</script>", "\n", "\r", "\t", "\b", "\f",
]  # fmt: skip
_TOKENS: Final = [
    "[", "]", "{", "}", ",", ":", '"', '""', '"a"', '"\\""', '"\\ud83d\\ude00"', '"\\ud83d"',
    '"\\u00e9"', '"\\udc00"', '"\\x"', '"é"', "1", "-0", "01", "1.5", "1.", ".5", "1e9", "1E+2",
    "1e", "true", "false", "null", "nul", " ", "\n", "\t", "\v", '"k":1', '"k" : []', "NaN", "'a'",
]  # fmt: skip
_PAYLOADS: Final = [
    "", "[]", '["a"]', '["a","b"]', '"a"', "[1]", "{}", "null", '[["a"]]', "[{}]", '["a",]', "[,]",
    '["a"]x', '["a" "b"]', '  [ "a" , "b" ]\r\n', '{"a":["b",{"c":null}]}', '{"a"}', "[", '["a',
    '"\\u00"', "[" * 900 + "]" * 900, "[" * 1500 + "]" * 1500, '"tab\there"', "\ufeff[]",
    '["\\/\\b\\f\\n\\r\\t\\"\\\\"]', "-", "-1",
    '"\\ud83d\\ue000"', '"\\ud83dx"', '"\x1f"', '"\x00"', "[1,2.5e3,true]", '{"a":1,}',
    '{"a":1,"a":2}',
]  # fmt: skip


def strings() -> Iterator[list[bytes]]:
    """A text, and the SockJS element that it becomes."""
    texts = ["".join(_random.choices(_PIECES, k=_random.randrange(12))) for _ in range(200)]
    for text in ["".join(map(chr, range(0x100))), "".join(_edges()), *texts]:
        yield [text.encode(), sockjs_element(text.encode())]


def _edges() -> Iterator[str]:
    """The characters before and after which escaping begins or ends."""
    characters = [chr(code) for code in range(0x10000) if not 0xD800 <= code < 0xE000]
    escaped = [len(sockjs_element(one.encode())) == len('"\\u0000"') for one in characters]
    for at in range(1, len(characters)):
        if escaped[at - 1] != escaped[at]:
            yield from characters[at - 1 : at + 1]


def payloads() -> Iterator[list[bytes]]:
    """A SockJS payload, then ``!`` if it is broken or the verbs that it holds."""
    texts = [*_PAYLOADS, *("".join(_random.choices(_TOKENS, k=3)) for _ in range(100))]
    texts += [_nearly(_value(3)) for _ in range(600)]
    broken = [b'["\xff"]', b'"\xed\xa0\x80"', b"\xc3"]
    for payload in [*(text.encode() for text in texts), *broken]:
        yield [payload, *_verbs(payload)]


def _value(depth: int) -> str:
    kind = _random.randrange(5 if depth else 3)
    if kind < 3:
        return _random.choice([token for token in _TOKENS if len(token) > 1 and ":" not in token])
    inner = [_value(depth - 1) for _ in range(_random.randrange(4))]
    if kind == 3:
        return "[" + _random.choice([",", " , "]).join(inner) + "]"
    return "{" + ",".join(f'"k{at}" :{one}' for at, one in enumerate(inner)) + "}"


def _nearly(text: str) -> str:
    """Mostly as it is, sometimes with a token that doesn't belong there."""
    at = _random.randrange(len(text) + 1)
    return text if _random.random() < 0.7 else text[:at] + _random.choice(_TOKENS) + text[at:]


def _verbs(payload: bytes) -> list[bytes]:
    # As gateway.transports.websocket does.
    if not payload:
        return []
    try:
        messages = orjson.loads(payload)
    except orjson.JSONDecodeError:
        return [b"!"]
    elements = messages if isinstance(messages, list) else [messages]
    return [b"=" + (one if isinstance(one, str) else "").encode() for one in elements]


def frames() -> Iterator[list[bytes]]:
    """A reader's bytes; its events (opcode and payload), and the close code if it broke off."""
    for _ in range(800):
        stream = b"".join(_frame() for _ in range(_random.randint(1, 6)))
        parser = FrameParser(MAX_BYTES)
        events = [bytes((event.opcode,)) + event.payload for event in parser.feed(stream)]
        violation = parser.violation
        yield [stream, *events, *([] if violation is None else [violation.code.to_bytes(2, "big")])]


def _frame() -> bytes:
    opcode = _random.choices(
        [TEXT, BINARY, 0, PING, PONG, CLOSE, 3, 0xB], [30, 10, 30, 10, 10, 8, 1, 1]
    )[0]
    fin = _random.random() < (0.98 if opcode & 8 else 0.5)
    payload = _payload(opcode)
    size = len(payload)
    first = opcode | (0x80 if fin else 0) | (0x40 if _random.random() < 0.01 else 0)
    masked = 0 if _random.random() < 0.01 else 0x80
    if size < 126:
        head = bytes((first, masked | size))
    else:
        head = bytes((first, masked | 126)) + size.to_bytes(2, "big")
    mask = _random.randbytes(4)
    return head + mask + bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload))


def _payload(opcode: int) -> bytes:
    if opcode == CLOSE:
        code = _random.choice([1000, 1001, 1004, 1005, 1006, 1012, 1015, 2999, 3000, 4999, 5000])
        return _random.choice([b"", b"\x03", code.to_bytes(2, "big") + b"bye", b"\x03\xe8\xff"])
    if opcode & 8:
        return b"p" * _random.choice([0, 1, 125, 125, 126])
    if opcode == BINARY:
        return _random.randbytes(_random.choice([0, 1, 7, 8, 9, 40]))
    text = "".join(_random.choices(["a", "é", "€", "\U0001f600"], k=_random.choice([0, 1, 5, 30])))
    if _random.random() < 0.02:
        return text.encode() + _random.choice([b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xe2\x82"])
    return text.encode()


def main(folder: Path) -> None:
    """Write all files into ``folder``."""
    for name, lines in [("strings", strings()), ("payloads", payloads()), ("frames", frames())]:
        text = "".join(" ".join(field.hex() for field in line) + "\n" for line in lines)
        (folder / f"{name}.txt").write_text(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
