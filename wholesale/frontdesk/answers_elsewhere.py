"""Reads what another region's frontdesk answers for its board. Pure.

It comes from another machine and goes on to an operator's browser, so nothing gets through that
the contract doesn't have: keys that aren't known are dropped, texts and lists are bounded, numbers
are numbers. An answer that lacks a key is refused as a whole; keys are only ever added, and what is
added later is optional here. Whoever only shows a board is lenient (operations.board_document).
"""

from __future__ import annotations

import dataclasses
from typing import Any, Final

import orjson

from newsfabric.json_fields import MAX_COUNT
from newsfabric.messages.reports import MAX_BUSIEST, MAX_FIGURES, MAX_REASONS, MAX_TEXT
from newsfabric.numbers import is_number, is_whole
from wholesale.frontdesk.events import EVENT_KINDS, MOST
from wholesale.frontdesk.presence import MAX_BOXES, MAX_SERVICES
from wholesale.frontdesk.region_page import SHOVELS_OF_A_BOX

#: A thousand boxes say some 3 KB each.
MAX_ANSWER_BYTES: Final = 8 << 20
_MAX_CLUSTERS: Final = 32
_MAX_NODES: Final = 64
# Keepers tell of the rest.
_MAX_SHOVELS: Final = SHOVELS_OF_A_BOX * MAX_BOXES + 1000


@dataclasses.dataclass(frozen=True, slots=True)
class _Listed:
    """A list of at most ``most``, each of ``shape``."""

    shape: Any
    most: int


@dataclasses.dataclass(frozen=True, slots=True)
class _Maybe:
    """``shape``, or null."""

    shape: Any


class _Figures:
    """Names and numbers."""


# Of a shape: a type, one of these, or an object with its keys.
_RATE: Final = float
_BUSY: Final = {"name": str, "messages_per_second": _RATE}
_PROCESS: Final[dict[str, Any]] = {
    "name": str,
    "state": str,
    "waiting_for": _Listed(str, MAX_REASONS),
    "version": str,
    "age_ms": int,
    "started_ms": int,
    # Before 0.2 nobody said it.
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
                # Before 0.2 nobody said who is unfit, nor how long ago it was heard.
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
class Answer:
    """What ``frontdesk`` said of its own ``region`` when its clock said ``now_ms``."""

    frontdesk: str
    now_ms: int
    region: dict[str, Any]
    events: list[dict[str, Any]]


def parse_answer(body: bytes, region: str) -> Answer:
    """The answer of ``region``'s frontdesk to ``/board.json?own=1``; ValueError if it isn't one."""
    if len(body) > MAX_ANSWER_BYTES:
        raise ValueError(f"an answer of {len(body)} bytes")
    # orjson's error is a ValueError.
    found = _checked(orjson.loads(body), _DOCUMENT, "document")
    if [one["name"] for one in found["regions"]] != [region]:
        raise ValueError(f"the answer isn't about {region}")
    if any(event["kind"] not in EVENT_KINDS for event in found["events"]):
        # One of a later release.
        found["events"] = [e for e in found["events"] if e["kind"] in EVENT_KINDS]
    return Answer(found["frontdesk"], found["now_ms"], found["regions"][0], found["events"])


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
