"""A frontdesk's picture of the fabric: reports in; the board's document and events out. Pure.

Its own region is known from reports alone (newsfabric.messages.reports, and load reports for
readers). Its own links show whether core and client clusters can be reached. Other regions are
known from their frontdesks' replies. The document is a contract (docs/board.md); the time is an
argument.

The decision that a reader would question: while its core is away, a frontdesk receives no reports.
It states that, and doesn't declare all processes gone. So silence counts only from the time when
reports could arrive. The same holds for a frontdesk that was stopped for a while.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from newsfabric.messages.control import LoadReport
from newsfabric.messages.reports import NodeSeen, Report, ShovelSeen
from wholesale.frontdesk.board import region_page
from wholesale.frontdesk.board.elsewhere import OtherRegions
from wholesale.frontdesk.board.endings import endings
from wholesale.frontdesk.board.events import EventKind, EventRing
from wholesale.frontdesk.board.region_page import MAX_REASONS, ReportedItem, shovel_moves, state_of
from wholesale.frontdesk.presence.presence import BOX, GONE_AFTER, Known, Presence

# Seconds between two checks. After a longer time this process was stopped, and missed reports.
PAUSED: Final = 2.0
# Seconds after the start in which processes that appear are no events.
QUIET_AT_FIRST: Final = 5.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FrontdeskPlace:
    """The place of a frontdesk in its fabric.

    ``planned``: cluster of its region → its nodes; ``others``: other region → its frontdesk's URL.
    """

    frontdesk: str
    region: str
    version: str
    frontdesk_url: str
    planned: Mapping[str, Sequence[str]]
    others: Mapping[str, str]

    @property
    def core(self) -> str:
        """The name of the region's core cluster."""
        return f"{self.region}/core"

    @property
    def client(self) -> str:
        """The name of the region's client cluster."""
        return f"{self.region}/client"


class Picture:
    """The knowledge of one frontdesk. Times: ``now`` is monotonic, ``now_ms`` the wall clock."""

    def __init__(self, place: FrontdeskPlace, now: float, now_ms: int) -> None:
        self.place = place
        self.events = EventRing(now_ms)
        self.elsewhere = OtherRegions(place.others, self.events, now)
        self._presence = Presence(place.region)
        self._reaches = {place.core: False, place.client: False}
        # Since when silence counts; None while the core is away.
        self._hearing_since: float | None = None
        self._began = self._looked = now
        self._shovels: dict[tuple[str, str], tuple[bool | None, int]] = {}
        # Shovels with an event that they are silent.
        self._silent: set[tuple[str, str]] = set()
        self._nodes: dict[tuple[str, str], bool] = {}

    # --- input ----------------------------------------------------------------------------

    def report(self, report: Report, now: float) -> bool:
        """Take a process's report, whose sender was checked; return whether it was accepted."""
        return self._presence.report(report, now)

    def load(self, load: LoadReport, now: float) -> bool:
        """Take a box's load report, whose sender was checked; return whether it was accepted."""
        return self._presence.load(load, now)

    def links(self, *, core: bool, client: bool, now: float) -> None:
        """Note whether the frontdesk's own links are up."""
        self._reach(self.place.core, core, now)
        self._reach(self.place.client, client, now)
        if not core:
            self._hearing_since = None
        elif self._hearing_since is None:
            self._hearing_since = now

    def _reach(self, cluster: str, reached: bool, now: float) -> None:
        before = self._reaches[cluster]
        self._reaches[cluster] = reached
        if before == reached or now - self._began < QUIET_AT_FIRST:
            return
        if reached:
            self._note("node_back", cluster, f"{cluster} answers again", now)
        else:
            deaf = ": nobody of this region is heard" if cluster == self.place.core else ""
            self._note("node_away", cluster, f"no node of {cluster} answers{deaf}", now)

    # --- events ---------------------------------------------------------------------------

    def update_events(self, now: float) -> None:
        """Find silent processes, and make events of changes. Call it several times a second."""
        if now - self._looked > PAUSED and self._hearing_since is not None:
            self._hearing_since = now
        self._looked = now
        for known in self._presence:
            self._follow(known, now)
        self._follow_shovels(now)
        self._follow_nodes(now)
        self.elsewhere.update_events(now)
        self._presence.forget(now)

    def _follow(self, known: Known, now: float) -> None:
        was_gone = known.gone
        if self._hearing_since is not None:
            silent = now - max(known.heard, self._hearing_since)
            # A process that is gone stays so until it reports again.
            known.gone = silent > GONE_AFTER or (known.gone and now - known.heard > GONE_AFTER)
        state, before = state_of(known), known.state
        known.state = state
        started = None if known.report is None else known.report.started_ms
        again = None not in (known.started_ms, started) and started != known.started_ms
        known.started_ms = started if started is not None else known.started_ms
        if before is None:
            if state == "ready" and now - self._began > QUIET_AT_FIRST:
                self._note("process_ready", known.name, f"{known.name} is ready", now)
        elif state == "gone" and not was_gone:
            self._note("process_gone", known.name, _how_gone(known, now), now)
        elif was_gone and state != "gone":
            self._note("process_back", known.name, f"{known.name} is back", now)
        elif again:
            self._note("process_back", known.name, f"{known.name} was started anew", now)
        elif state != before:
            self._changed(known, state, now)

    def _changed(self, known: Known, state: str, now: float) -> None:
        name = known.name
        if state == "ready":
            self._note("process_ready", name, f"{name} is ready", now)
        elif state == "draining" and known.kind == BOX:
            self._note("box_draining", name, f"{name} is draining", now)
        elif state == "draining":
            self._note("process_not_ready", name, f"{name} is draining", now)
        elif state == "starting":
            self._note("process_not_ready", name, f"{name} is not ready{_because(known)}", now)

    def _follow_shovels(self, now: float) -> None:
        before, self._shovels = self._shovels, {}
        for key, seen in region_page.shovels_of(self._presence, now).items():
            shovel: ShovelSeen = seen.what
            who = f"{shovel.runs_on}/{shovel.name}"
            moves, restarts = shovel_moves(seen), shovel.restarts
            moved, restarted = before.get(key, (None, restarts))
            if moves is None:
                moves = moved
            self._shovels[key] = moves, restarts
            if restarts > restarted:
                self._note("shovel_remade", who, f"{who} was made anew: it brought nothing", now)
            if moved and not moves:
                self._silent.add(key)
                self._note("shovel_silent", who, f"{who} brings nothing", now)
            elif moves and key in self._silent:
                self._silent.discard(key)
                self._note("shovel_back", who, f"{who} brings messages again", now)
        self._silent &= self._shovels.keys()

    def _follow_nodes(self, now: float) -> None:
        before, self._nodes = self._nodes, {}
        for key, seen in region_page.nodes_of(self._presence, now).items():
            node: NodeSeen = seen.what
            ran = before.get(key)
            self._nodes[key] = runs = node.running if seen.fresh or ran is None else ran
            if ran and not runs:
                self._note("node_away", node.node, f"{node.node} ({node.cluster}) is away", now)
            elif ran is False and runs:
                self._note("node_back", node.node, f"{node.node} ({node.cluster}) is back", now)

    def _note(self, kind: EventKind, who: str, text: str, now: float) -> None:
        self.events.add(self.place.region, kind, who, text, now)

    # --- output ---------------------------------------------------------------------------

    def picture_document(
        self, now: float, now_ms: int, *, own: bool = False, after: int = 0
    ) -> dict[str, Any]:
        """Return the board's document, with the events after number ``after``.

        ``own`` leaves other regions out.
        """
        place = self.place
        region = place.region if own else None
        return {
            "frontdesk": place.frontdesk,
            "region": place.region,
            "version": place.version,
            "now_ms": now_ms,
            "regions": [self.region(now, now_ms), *([] if own else self.elsewhere.documents(now))],
            "events": self.events.events_document(now, now_ms, after=after, region=region),
        }

    def region(self, now: float, now_ms: int) -> dict[str, Any]:
        """Return the own region. A certificate that ends soon is a reason, but no trouble yet."""
        place = self.place
        listed = sorted(self._presence, key=lambda known: (known.kind, known.name))
        # A process that left after an order isn't missed.
        boxes = [known for known in listed if known.kind == BOX]
        services = [known for known in listed if known.kind != BOX and known.report is not None]
        shovels = region_page.shovels_of(listed, now)
        away = "" if self._reaches[place.core] else place.core
        clusters = region_page.cluster_pages(
            place.planned, region_page.nodes_of(listed, now), core_away=away
        )
        ending = endings(listed, now_ms)
        wrong = [
            *self._links_wrong(),
            *_wrong(listed, clusters, shovels),
            *(one.text for one in ending if one.trouble),
        ]
        why = [*wrong, *(one.text for one in ending if not one.trouble)]
        return {
            "name": place.region,
            "frontdesk_url": place.frontdesk_url,
            "age_ms": 0,
            "state": "troubled" if wrong else "well",
            "why": why[:MAX_REASONS],
            "totals": region_page.totals_page(listed, now),
            "clusters": clusters,
            "services": [region_page.service_page(known, now) for known in services],
            "shovels": [region_page.shovel_page(shovels[key]) for key in sorted(shovels)],
            "boxes": [region_page.box_page(known, now) for known in boxes],
            "topics": region_page.busiest_page(listed, "topics", now),
            "publishers": region_page.busiest_page(listed, "publishers", now),
        }

    def _links_wrong(self) -> Iterator[str]:
        place = self.place
        if not self._reaches[place.core]:
            yield f"{place.frontdesk} reaches no node of {place.core}: it hears nobody"
        if not self._reaches[place.client]:
            yield f"{place.frontdesk} reaches no node of {place.client}"


def _wrong(
    listed: Sequence[Known],
    clusters: Sequence[Mapping[str, Any]],
    shovels: Mapping[tuple[str, str], ReportedItem],
) -> Iterator[str]:
    for cluster in clusters:
        for node in cluster["nodes"]:
            if not node["running"]:
                yield f"{node['node']} is away"
            elif node["alarm"]:
                yield f"{node['node']} has a {node['alarm']} alarm"
            elif node["unfit"]:
                yield (
                    f"{node['node']} doesn't make {node['unfit']} shovels work: restart the "
                    "broker, what runs its shovels may be dead"
                )
    for known in listed:
        state = state_of(known)
        if state == "gone" and not known.left:
            yield f"{known.name} is silent"
        elif state == "starting":
            yield f"{known.name} is not ready{_because(known)}"
    boxes = [known for known in listed if known.kind == BOX and not known.left]
    if not any(state_of(known) == "ready" for known in boxes):
        yield "no box is ready"
    for key in sorted(shovels):
        if shovel_moves(shovels[key]) is False:
            yield f"{key[0]}/{key[1]} brings nothing"


def _because(known: Known) -> str:
    reasons = region_page.waiting_for(known)
    return f": waits for {', '.join(reasons)}" if reasons else ""


def _how_gone(known: Known, now: float) -> str:
    if known.left:
        return f"{known.name} has left, as it was told to"
    return f"{known.name} has been silent for {round(now - known.heard)} s"
