"""Parses the reply of another region's frontdesk for the board. Pure.

The reply comes from another machine and is sent on to an operator's browser, so only data of the
contract pass: unknown keys are dropped, texts and lists are bounded, numbers are checked. A reply
that lacks a key is refused as a whole. Keys are only ever added, and later keys are optional here.
Programs that only show a board are lenient (operations.board_document).
"""

from __future__ import annotations

import dataclasses
from typing import Any, Final

import orjson

from newsfabric.json_fields import MAX_COUNT
from newsfabric.messages.reports import MAX_BUSIEST, MAX_FIGURES, MAX_REASONS, MAX_TEXT
from newsfabric.numbers import is_number, is_whole
from wholesale.frontdesk.board.events import EVENT_KINDS, MOST
from wholesale.frontdesk.board.region_page import SHOVELS_OF_A_BOX
from wholesale.frontdesk.presence.presence import MAX_BOXES, MAX_SERVICES

#: A thousand boxes report some 3 KB each.
MAX_ANSWER_BYTES: Final = 8 << 20
_MAX_CLUSTERS: Final = 32
_MAX_NODES: Final = 64
# Keepers report the rest.
_MAX_SHOVELS: Final = SHOVELS_OF_A_BOX * MAX_BOXES + 1000


@dataclasses.dataclass(frozen=True, slots=True)
class _Listed:
    """A list of at most ``most`` items, each of ``shape``."""

    shape: Any
    most: int


@dataclasses.dataclass(frozen=True, slots=True)
class _Maybe:
    """A value of ``shape``, or null."""

    shape: Any


class _Figures:
    """An object of names and numbers."""


# A shape is a type, one of the classes above, or an object with its keys.
_RATE: Final = float
_BUSY: Final = {"name": str, "messages_per_second": _RATE}
_PROCESS: Final[dict[str, Any]] = {
    "name": str,
    "state": str,
    "waiting_for": _Listed(str, MAX_REASONS),
    "version": str,
    "age_ms": int,
    "started_ms": int,
    # Not sent by releases before 0.2.
    "left": _Maybe(bool),
    "figures": _Figures,
}
_REGION: Final[dict[str, Any]] = {
    "name": str,
    "state": str,
    "why": _Listed(str, MAX_REASONS),
    "totals": {
        "readers": int,
        "capacity": int,
        "boxes": int,
        "boxes_ready": int,
        "messages_per_second": _RATE,
        "deliveries_per_second": _RATE,
        "connects_per_second": _RATE,
        "delay_p50_ms": _Maybe(_RATE),
        "delay_p99_ms": _Maybe(_RATE),
    },
    "clusters": _Listed(
        {
            "name": str,
            "nodes": _Listed(
                # ``unfit`` and ``age_ms`` aren't sent by releases before 0.2.
                {
                    "node": str,
                    "running": bool,
                    "alarm": str,
                    "unfit": _Maybe(int),
                    "age_ms": _Maybe(int),
                },
                _MAX_NODES,
            ),
        },
        _MAX_CLUSTERS,
    ),
    "services": _Listed(_PROCESS | {"kind": str}, MAX_SERVICES),
    "shovels": _Listed(
        {
            "name": str,
            "runs_on": str,
            "source": str,
            "state": str,
            "canary_age_ms": _Maybe(int),
            "messages_per_second": _Maybe(_RATE),
            "restarts": int,
        },
        _MAX_SHOVELS,
    ),
    "boxes": _Listed(
        _PROCESS
        | {
            "engine": str,
            "readers": int,
            "capacity": int,
            "messages_per_second": _RATE,
            "deliveries_per_second": _RATE,
            "connects_per_second": _RATE,
            "delay_p50_ms": _Maybe(_RATE),
            "delay_p99_ms": _Maybe(_RATE),
        },
        MAX_BOXES,
    ),
    "topics": _Listed(_BUSY, MAX_BUSIEST),
    "publishers": _Listed(_BUSY, MAX_BUSIEST),
}
_EVENT: Final[dict[str, Any]] = {"seq": int, "at_ms": int, "kind": str, "who": str, "text": str}
_DOCUMENT: Final[dict[str, Any]] = {
    "frontdesk": str,
    "now_ms": int,
    "regions": _Listed(_REGION, 1),
    "events": _Listed(_EVENT, MOST),
}


@dataclasses.dataclass(frozen=True, slots=True)
class BoardReply:
    """The reply of ``frontdesk`` about its own ``region``, at ``now_ms`` of its clock."""

    frontdesk: str
    now_ms: int
    region: dict[str, Any]
    events: list[dict[str, Any]]


def parse_answer(body: bytes, region: str) -> BoardReply:
    """Return the parsed reply to ``/board.json?own=1`` of ``region``'s frontdesk, or ValueError."""
    if len(body) > MAX_ANSWER_BYTES:
        raise ValueError(f"an answer of {len(body)} bytes")
    # orjson's error is a ValueError.
    found = _checked(orjson.loads(body), _DOCUMENT, "document")
    if [one["name"] for one in found["regions"]] != [region]:
        raise ValueError(f"the answer isn't about {region}")
    if any(event["kind"] not in EVENT_KINDS for event in found["events"]):
        # An event of a later release.
        found["events"] = [e for e in found["events"] if e["kind"] in EVENT_KINDS]
    return BoardReply(found["frontdesk"], found["now_ms"], found["regions"][0], found["events"])


def _checked(value: Any, shape: Any, where: str) -> Any:
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            raise ValueError(f"{where} is no object")
        return {key: _checked(value.get(key), kind, key) for key, kind in shape.items()}
    if isinstance(shape, _Listed):
        if not isinstance(value, list) or len(value) > shape.most:
            raise ValueError(f"{where} is no list of at most {shape.most}")
        return [_checked(each, shape.shape, where) for each in value]
    if isinstance(shape, _Maybe):
        return None if value is None else _checked(value, shape.shape, where)
    if shape is _Figures:
        return _figures(value, where)
    if not _is(value, shape):
        raise ValueError(f"{where} is no {shape.__name__}, or out of its bounds")
    return value


def _is(value: Any, kind: type) -> bool:
    if kind is str:
        return isinstance(value, str) and len(value) <= MAX_TEXT
    if kind is bool:
        return isinstance(value, bool)
    if kind is int:
        return is_whole(value, 0, MAX_COUNT)
    return is_number(value, 0, MAX_COUNT)


def _figures(value: Any, where: str) -> dict[str, float]:
    if not isinstance(value, dict) or len(value) > MAX_FIGURES:
        raise ValueError(f"{where} has more than {MAX_FIGURES}")
    for name, number in value.items():
        if len(name) > MAX_TEXT or not is_number(number, -MAX_COUNT, MAX_COUNT):
            raise ValueError(f"{where} has what is no figure")
    return value
