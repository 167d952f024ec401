"""One region as the board's document has it, made of what its processes said last. Pure.

Shapes are in docs/board.md: keys are added, never changed. Every list is in the order of names, so
that two documents can be compared.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from newsfabric.json_fields import MAX_COUNT
from newsfabric.messages.control import LoadReport
from newsfabric.messages.reports import MAX_BUSIEST, OLD_MS, Busy, NodeSeen, ShovelSeen
from wholesale.frontdesk.presence import BOX, Known

#: Seconds without a canary after which a shovel brings nothing (newsfabric.brokers.watch).
SILENT_AFTER_MS: Final = 10_000
MAX_REASONS: Final = 16
#: Seconds after which what a process said counts for nothing, though nobody calls it gone.
HEARD_WITHIN: Final = OLD_MS / 1000
# Twice as many as it has. Other frontdesks take so many from a thousand boxes, and no more.
SHOVELS_OF_A_BOX: Final = 8
# Of a number with a fraction, and surely below MAX_COUNT when it has been rounded.
_MOST: Final = 1e18

# Figures that the document has under names of its own.
PUBLICATIONS: Final = "gateway_publications"
DELAY: Final = "gateway_delay_seconds"
ROUTED: Final = "router_stage_left_messages.route"


@dataclasses.dataclass(frozen=True, slots=True)
class Seen:
    """Something that a process told of, and how old that is. ``fresh``: its teller is there."""

    what: Any
    age: float
    fresh: bool


def shovels_of(processes: Iterable[Known], now: float) -> dict[tuple[str, str], Seen]:
    """The shovels that keepers and boxes tell of; where two tell of one, who is fresher."""
    found: dict[tuple[str, str], Seen] = {}
    for known in processes:
        listed = known.report.shovels if known.report is not None else ()
        # A box tells of its own shovels, and of nobody else's.
        if known.kind == BOX:
            own = (shovel for shovel in listed if shovel.runs_on == known.name)
            listed = tuple(itertools.islice(own, SHOVELS_OF_A_BOX))
        for shovel in listed:
            if known.kind not in (BOX, "keeper"):
                continue
            _put(found, (shovel.runs_on, shovel.name), shovel, known, now)
    return found


def nodes_of(processes: Iterable[Known], now: float) -> dict[tuple[str, str], Seen]:
    """The nodes that keepers tell of."""
    found: dict[tuple[str, str], Seen] = {}
    for known in processes:
        if known.kind == "keeper" and known.report is not None:
            for node in known.report.nodes:
                _put(found, (node.cluster, node.node), node, known, now)
    return found


def _put(
    found: dict[tuple[str, str], Seen], key: tuple[str, str], what: Any, known: Known, now: float
) -> None:
    seen = Seen(what, now - known.heard, not known.gone)
    before = found.get(key)
    if before is None or (seen.fresh, -seen.age) > (before.fresh, -before.age):
        found[key] = seen


def shovel_moves(seen: Seen) -> bool | None:
    """Whether a shovel brings what is sent; None while nobody knows."""
    shovel: ShovelSeen = seen.what
    if not seen.fresh:
        return None
    if shovel.canary_age_ms is None:
        return None if shovel.state == "running" else False
    return shovel.canary_age_ms <= SILENT_AFTER_MS


def shovel_page(seen: Seen) -> dict[str, Any]:
    """A shovel. What nobody vouches for any more is ``unknown``, and grows older."""
    shovel: ShovelSeen = seen.what
    age = shovel.canary_age_ms
    return {
        "name": shovel.name,
        "runs_on": shovel.runs_on,
        "source": shovel.source,
        "state": shovel.state if seen.fresh else "unknown",
        "canary_age_ms": None if age is None else _bounded(age + _ms(seen.age)),
        "messages_per_second": shovel.messages_per_second if seen.fresh else None,
        "restarts": shovel.restarts,
    }


def state_of(known: Known) -> str:
    """``ready``, ``starting``, ``draining`` or ``gone``.

    Readers are sent where the load report says that the box is ready, so that word counts.
    """
    if known.gone:
        return "gone"
    if known.load is not None:
        return known.load.state
    return known.says()


def waiting_for(known: Known) -> list[str]:
    """Why it isn't ready."""
    return [] if known.report is None else list(known.report.waiting_for)


def service_page(known: Known, now: float) -> dict[str, Any]:
    """A process in the board's document; times are in ms."""
    assert known.report is not None
    return {
        "name": known.name,
        "kind": known.kind,
        "version": known.report.version,
        "state": state_of(known),
        "waiting_for": waiting_for(known),
        "age_ms": _ms(now - known.heard),
        "started_ms": known.report.started_ms,
        "left": known.left,
        "figures": dict(known.report.figures),
    }


def box_page(known: Known, now: float) -> dict[str, Any]:
    """A box in the board's document; times are in ms, rates per second."""
    report, load = known.report, known.load
    figures: Mapping[str, float] = {} if report is None else report.figures
    return {
        "name": known.name,
        "state": state_of(known),
        "waiting_for": waiting_for(known),
        "readers": _load(load, "connections"),
        "capacity": _load(load, "capacity"),
        "messages_per_second": _rate(figures.get(PUBLICATIONS, 0.0)),
        "deliveries_per_second": _load(load, "deliveries_per_second"),
        "connects_per_second": _load(load, "connects_per_second"),
        "delay_p50_ms": _as_ms(figures.get(f"{DELAY}.p50")),
        "delay_p99_ms": _as_ms(figures.get(f"{DELAY}.p99")),
        "engine": "" if report is None else report.engine,
        "version": "" if report is None else report.version,
        "age_ms": _ms(now - known.heard),
        "started_ms": 0 if report is None else report.started_ms,
        "left": known.left,
        "figures": dict(figures),
    }


def heard_lately(processes: Iterable[Known], now: float) -> list[Known]:
    """Those of which it is known what they do now: not gone, and heard of within seconds.

    While its core is away a frontdesk calls nobody gone, and knows of nobody.
    """
    return [known for known in processes if not known.gone and now - known.heard <= HEARD_WITHIN]


def totals_page(processes: Iterable[Known], now: float) -> dict[str, Any]:
    """What the region does as a whole, by those who were heard of lately.

    Quantiles of several boxes don't add up: ``delay_p50_ms`` is the p50 of the box in the middle,
    each counted by what it published, ``delay_p99_ms`` that of the slowest box.
    """
    listed = heard_lately(processes, now)
    boxes = [known for known in listed if known.kind == BOX]
    loads = [known.load for known in boxes if known.load is not None]
    routed = [_figure(known, ROUTED) or 0.0 for known in listed if known.kind == "router"]
    p50 = [
        (found, _figure(known, PUBLICATIONS) or 0.0)
        for known in boxes
        if (found := _figure(known, f"{DELAY}.p50")) is not None
    ]
    p99 = [found for k in boxes if (found := _figure(k, f"{DELAY}.p99")) is not None]
    return {
        "readers": _bounded(sum(load.connections for load in loads)),
        "capacity": _bounded(sum(load.capacity for load in loads)),
        "boxes": len(boxes),
        "boxes_ready": sum(state_of(known) == "ready" for known in boxes),
        "messages_per_second": _rate(sum(routed)),
        "deliveries_per_second": _rate(sum(load.deliveries_per_second for load in loads)),
        "connects_per_second": _rate(sum(load.connects_per_second for load in loads)),
        "delay_p50_ms": _as_ms(_middle(p50)),
        "delay_p99_ms": _as_ms(max(p99) if p99 else None),
    }


def busiest_page(processes: Iterable[Known], field: str, now: float) -> list[dict[str, Any]]:
    """The busiest topics or publishers, by routers that were heard of lately."""
    sums: collections.Counter[str] = collections.Counter()
    for known in heard_lately(processes, now):
        if known.kind == "router" and known.report is not None:
            busy: tuple[Busy, ...] = getattr(known.report, field)
            for each in busy:
                sums[each.name] += each.messages_per_second  # type: ignore[assignment]
    best = sorted(sums.items(), key=lambda item: (-item[1], item[0]))[:MAX_BUSIEST]
    return [{"name": name, "messages_per_second": _rate(rate)} for name, rate in best]


def cluster_pages(
    planned: Mapping[str, Sequence[str]], seen: Mapping[tuple[str, str], Seen], *, core_away: str
) -> list[dict[str, Any]]:
    """The clusters: the nodes that there should be, and what keepers tell of them.

    ``core_away`` names the core if none of its nodes answers this frontdesk, who then hears from
    no keeper. A node of which nobody tells is taken for running: nothing says otherwise. ``age_ms``
    is how old that word is, None while there is none.
    """
    pages: list[dict[str, Any]] = []
    names = dict.fromkeys([*planned, *(cluster for cluster, _ in seen)])
    for cluster in names:
        nodes = dict.fromkeys([*planned.get(cluster, ()), *(n for c, n in seen if c == cluster)])
        pages.append(
            {
                "name": cluster,
                "nodes": [
                    _node(node, seen.get((cluster, node)), away=cluster == core_away)
                    for node in nodes
                ],
            }
        )
    return pages


def _node(name: str, seen: Seen | None, *, away: bool) -> dict[str, Any]:
    node: NodeSeen | None = None if seen is None else seen.what
    return {
        "node": name,
        "running": not away and (node is None or node.running),
        "alarm": "" if node is None else node.alarm,
        "unfit": 0 if node is None else node.unfit,
        # That nobody answers is what the frontdesk sees itself, now.
        "age_ms": 0 if away else None if seen is None else _ms(seen.age),
    }


def _figure(known: Known, name: str) -> float | None:
    return None if known.report is None else known.report.figures.get(name)


def _middle(weighted: list[tuple[float, float]]) -> float | None:
    """The median by weight; by number while nothing weighs anything."""
    if not weighted:
        return None
    if not sum(weight for _, weight in weighted):
        weighted = [(value, 1.0) for value, _ in weighted]
    half, so_far = sum(weight for _, weight in weighted) / 2, 0.0
    for value, weight in sorted(weighted):
        so_far += weight
        if so_far >= half:
            return value
    return max(weighted)[0]


def _load(load: LoadReport | None, field: str) -> Any:
    return 0 if load is None else getattr(load, field)


def _ms(seconds: float) -> int:
    return _bounded(round(seconds * 1000))


def _as_ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(min(max(0.0, seconds * 1000), _MOST), 3)


def _rate(value: float) -> float:
    return round(min(max(0.0, value), _MOST), 1)


def _bounded(value: int) -> int:
    """``value`` as other frontdesks take it: a box that lies mustn't make the region unreadable."""
    return min(max(0, value), MAX_COUNT)
