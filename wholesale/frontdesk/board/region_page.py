"""A region in the board's document, from the last reports of its processes. Pure.

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
from wholesale.frontdesk.presence.presence import BOX, Known

#: Milliseconds without a canary after which a shovel counts as silent (newsfabric.brokers.watch).
SILENT_AFTER_MS: Final = 10_000
MAX_REASONS: Final = 16
#: Seconds after which a process's report is ignored, though the process isn't known to be gone.
HEARD_WITHIN: Final = OLD_MS / 1000
# More than twice as many as it has; other frontdesks accept so many from a thousand boxes.
SHOVELS_OF_A_BOX: Final = 8
# Bound of a number with a fraction: below MAX_COUNT even after rounding.
_MOST: Final = 1e18

# Figures that have keys of their own in the document.
PUBLICATIONS: Final = "gateway_publications"
DELAY: Final = "gateway_delay_seconds"
ROUTED: Final = "router_stage_left_messages.route"


@dataclasses.dataclass(frozen=True, slots=True)
class ReportedItem:
    """An item of a process's report, and its age. ``fresh``: the process isn't gone."""

    what: Any
    age: float
    fresh: bool


def shovels_of(processes: Iterable[Known], now: float) -> dict[tuple[str, str], ReportedItem]:
    """Return the shovels that keepers and boxes report; of two reports the fresher one counts."""
    found: dict[tuple[str, str], ReportedItem] = {}
    for known in processes:
        listed = known.report.shovels if known.report is not None else ()
        # A box may report its own shovels only.
        if known.kind == BOX:
            own = (shovel for shovel in listed if shovel.runs_on == known.name)
            listed = tuple(itertools.islice(own, SHOVELS_OF_A_BOX))
        for shovel in listed:
            if known.kind not in (BOX, "keeper"):
                continue
            _put(found, (shovel.runs_on, shovel.name), shovel, known, now)
    return found


def nodes_of(processes: Iterable[Known], now: float) -> dict[tuple[str, str], ReportedItem]:
    """Return the nodes that keepers report."""
    found: dict[tuple[str, str], ReportedItem] = {}
    for known in processes:
        if known.kind == "keeper" and known.report is not None:
            for node in known.report.nodes:
                _put(found, (node.cluster, node.node), node, known, now)
    return found


def _put(
    found: dict[tuple[str, str], ReportedItem],
    key: tuple[str, str],
    what: Any,
    known: Known,
    now: float,
) -> None:
    seen = ReportedItem(what, now - known.heard, not known.gone)
    before = found.get(key)
    if before is None or (seen.fresh, -seen.age) > (before.fresh, -before.age):
        found[key] = seen


def shovel_moves(seen: ReportedItem) -> bool | None:
    """Return whether a shovel moves messages; None while that isn't known."""
    shovel: ShovelSeen = seen.what
    if not seen.fresh:
        return None
    if shovel.canary_age_ms is None:
        return None if shovel.state == "running" else False
    return shovel.canary_age_ms <= SILENT_AFTER_MS


def shovel_page(seen: ReportedItem) -> dict[str, Any]:
    """Return a shovel. Without a fresh report its state is ``unknown``, and its age grows."""
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
    """Return ``ready``, ``starting``, ``draining`` or ``gone``.

    Readers are sent to a box by the state in its load report, so that state takes precedence.
    """
    if known.gone:
        return "gone"
    if known.load is not None:
        return known.load.state
    return known.reported_state()


def waiting_for(known: Known) -> list[str]:
    """Return the reasons why it isn't ready."""
    return [] if known.report is None else list(known.report.waiting_for)


def service_page(known: Known, now: float) -> dict[str, Any]:
    """Return a process for the board's document; times are in ms."""
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
    """Return a box for the board's document; times are in ms, rates per second."""
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


def recently_reported(processes: Iterable[Known], now: float) -> list[Known]:
    """Return the processes whose present state is known: not gone, and with a recent report.

    While its core is away, a frontdesk declares no process gone, and knows no present state.
    """
    return [known for known in processes if not known.gone and now - known.heard <= HEARD_WITHIN]


def totals_page(processes: Iterable[Known], now: float) -> dict[str, Any]:
    """Return the sums of the region, over processes with recent reports.

    Quantiles of several boxes can't be added: ``delay_p50_ms`` is the p50 of the median box,
    weighted by publications; ``delay_p99_ms`` is that of the slowest box.
    """
    listed = recently_reported(processes, now)
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
    """Return the busiest topics or publishers, by routers with recent reports."""
    sums: collections.Counter[str] = collections.Counter()
    for known in recently_reported(processes, now):
        if known.kind == "router" and known.report is not None:
            busy: tuple[Busy, ...] = getattr(known.report, field)
            for each in busy:
                sums[each.name] += each.messages_per_second  # type: ignore[assignment]
    best = sorted(sums.items(), key=lambda item: (-item[1], item[0]))[:MAX_BUSIEST]
    return [{"name": name, "messages_per_second": _rate(rate)} for name, rate in best]


def cluster_pages(
    planned: Mapping[str, Sequence[str]],
    seen: Mapping[tuple[str, str], ReportedItem],
    *,
    core_away: str,
) -> list[dict[str, Any]]:
    """Return the clusters: the planned nodes, and the keepers' reports of them.

    ``core_away`` names the core if none of its nodes answers this frontdesk, which then receives no
    keeper's report. A node without a report counts as running. ``age_ms`` is the age of the report,
    None without one.
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


def _node(name: str, seen: ReportedItem | None, *, away: bool) -> dict[str, Any]:
    node: NodeSeen | None = None if seen is None else seen.what
    return {
        "node": name,
        "running": not away and (node is None or node.running),
        "alarm": "" if node is None else node.alarm,
        "unfit": 0 if node is None else node.unfit,
        # The frontdesk sees this itself, now.
        "age_ms": 0 if away else None if seen is None else _ms(seen.age),
    }


def _figure(known: Known, name: str) -> float | None:
    return None if known.report is None else known.report.figures.get(name)


def _middle(weighted: list[tuple[float, float]]) -> float | None:
    """Return the median by weight; unweighted while all weights are 0."""
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
    """Return ``value`` in the bounds of other frontdesks: a false one must not break the region."""
    return min(max(0, value), MAX_COUNT)
