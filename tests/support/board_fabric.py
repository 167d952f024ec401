"""A made-up fabric for ``/board.json``: figures that change, and faults on demand. No I/O.

All values follow from the seed and the times passed in, so that two runs are equal.
"""

from __future__ import annotations

import dataclasses
import math
import random
from typing import Any, Final

from newsfabric.kinds import CORE

VERSION: Final = "0.1.0"
TOPICS: Final = (
    ("news.breaking", 41.0),
    ("live.election", 33.0),
    ("markets.indices", 28.5),
    ("sport.football", 17.2),
    ("news.world", 9.1),
    ("weather.warnings", 3.4),
    ("video.feed", 1.2),
    ("culture.reviews", 0.3),
)
PUBLISHERS: Final = (("cms", 62.0), ("markets-feed", 28.5), ("live-desk", 33.0), ("wire", 11.7))
CLOSES: Final = ("went_away", "drain", "slow_reader")
EVERY_MS: Final = 5000
MAX_EVENTS: Final = 100
_CAPACITY: Final = 60_000
_GONE_MS: Final = 2500
_TEXTS: Final = {
    "process_gone": "{who} has been silent for 3 s",
    "process_back": "{who} is back after {ago} s",
    "process_ready": "{who} is ready",
    "process_not_ready": "{who} isn't ready: it waits for its feeds",
    "box_draining": "{who} drains",
    "shovel_silent": "{who} has brought no canary for 10 s",
    "shovel_back": "{who} brings canaries again",
    "shovel_remade": "{who} was made anew",
    "node_away": "{who} isn't running",
    "node_back": "{who} runs again",
    "region_away": "{who}'s frontdesk doesn't answer",
    "region_back": "{who}'s frontdesk answers again",
}


@dataclasses.dataclass
class MadeUpFabric:
    """Regions with boxes; ``silent``, ``draining``, ``starting`` and the like are the faults.

    ``now_ms`` is the clock of the frontdesk that answers; :meth:`tick` moves it.
    """

    regions: tuple[str, ...] = ("oregon", "dublin")
    boxes: int = 40
    now_ms: int = 1_790_000_000_000
    seed: int = 7
    silent: dict[str, int] = dataclasses.field(default_factory=dict)
    away: dict[str, int] = dataclasses.field(default_factory=dict)
    draining: set[str] = dataclasses.field(default_factory=set)
    starting: set[str] = dataclasses.field(default_factory=set)
    down_nodes: set[str] = dataclasses.field(default_factory=set)
    alarms: dict[str, str] = dataclasses.field(default_factory=dict)
    slow_shovels: dict[str, int] = dataclasses.field(default_factory=dict)
    urls: dict[str, str] = dataclasses.field(default_factory=dict)
    events: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    frontdesk: str = ""
    ticks: int = 0

    def __post_init__(self) -> None:
        self._rng = random.Random(self.seed)
        self._phases: dict[str, float] = {}
        self._seq = 0
        self._began_ms = self.now_ms

    def tick(self, ms: int = 1000) -> None:
        """Move the clock ``ms`` forward."""
        self.now_ms += ms
        self.ticks += 1

    def happens(self, kind: str, region: str, who: str, **values: Any) -> None:
        """Append an event."""
        self._seq += 1
        text = _TEXTS[kind].format(who=who, **values)
        event = {
            "seq": self._seq,
            "at_ms": self.now_ms,
            "region": region,
            "kind": kind,
            "who": who,
            "text": text,
        }
        self.events = [*self.events, event][-MAX_EVENTS:]

    def silence(self, name: str) -> None:
        """Let a process fall silent."""
        self.silent[name] = self.now_ms - 3000
        self.happens("process_gone", self._region_of(name), name)

    def speak(self, name: str) -> None:
        """Let a silent process report again."""
        ago = (self.now_ms - self.silent.pop(name)) // 1000
        self.happens("process_back", self._region_of(name), name, ago=ago)

    def cut(self, region: str) -> None:
        """Make a region's frontdesk unreachable."""
        self.away[region] = self.now_ms - 6000
        self.happens("region_away", region, region)

    def mend(self, region: str) -> None:
        """Make a region's frontdesk reachable again."""
        del self.away[region]
        self.happens("region_back", region, region)

    def board_document(self, after_seq: int = 0) -> dict[str, Any]:
        """Return the document of ``/board.json``, with the events after ``after_seq``."""
        home = self.regions[0] if self.regions else "nowhere"
        return {
            "frontdesk": self.frontdesk or f"{home}-frontdesk-1",
            "region": home,
            "version": VERSION,
            "now_ms": self.now_ms,
            "regions": [self._region(name) for name in self.regions],
            "events": [event for event in self.events if event["seq"] > after_seq],
        }

    def plots(self, points: int = 720) -> dict[str, Any]:
        """Return the document of ``/board/plots.json``: by default the last hour."""
        last = self.now_ms // EVERY_MS * EVERY_MS
        at = [last - EVERY_MS * (points - 1 - n) for n in range(points)]
        return {
            "every_ms": EVERY_MS,
            "regions": {
                name: {"at_ms": at, "series": self._series(name, at)} for name in self.regions
            },
        }

    def _region(self, name: str) -> dict[str, Any]:
        boxes = [self._box(name, n) for n in range(1, self.boxes + 1)]
        services = [self._service(name, kind, n) for kind, n in _SERVICES]
        shovels = self._shovels(name)
        clusters = [self._cluster(name, kind) for kind in ("client", "core")]
        why = [f"{each} is silent" for each in self.silent if self._region_of(each) == name]
        why += [f"{each} isn't running" for each in self.down_nodes if each.startswith(name)]
        why += [f"{s['name']} is silent" for s in shovels if (s["canary_age_ms"] or 0) > 10_000]
        state = "away" if name in self.away else "troubled" if why else "well"
        age = self.now_ms - self.away[name] if name in self.away else 0
        if name in self.away:
            why = [f"{name}'s frontdesk doesn't answer"]
        elif name != self.regions[0]:
            age = self._between(name + "age", 300, 1900)
        return {
            "name": name,
            "frontdesk_url": self.urls.get(name, f"http://{name}.invalid:8080"),
            "age_ms": int(age),
            "state": state,
            "why": why[:16],
            "totals": _totals(boxes),
            "clusters": clusters,
            "services": services,
            "shovels": shovels,
            "boxes": boxes,
            "topics": [self._busy(name, *each) for each in TOPICS],
            "publishers": [self._busy(name, *each) for each in PUBLISHERS],
        }

    def _state(self, name: str) -> tuple[str, list[str]]:
        if name in self.silent:
            return "gone", []
        if name in self.starting:
            return "starting", ["its feeds: no canary has come yet"]
        return ("draining" if name in self.draining else "ready"), []

    def _age(self, name: str, region: str) -> int:
        if name in self.silent:
            return self.now_ms - self.silent[name]
        return int(self._between(name + "age", 20, 980)) if region not in self.away else 0

    def _box(self, region: str, n: int) -> dict[str, Any]:
        name = f"{region}-retail-{n}"
        state, waiting_for = self._state(name)
        lives = state in {"ready", "draining"}
        wave = self._wave(name, 40)
        readers = int(_CAPACITY * (0.46 + 0.2 * wave)) if lives else 0
        messages = 134.0 + 12 * self._wave(region, 17) + 2 * wave if lives else 0.0
        deliveries = messages * readers * 0.031
        p50, p99 = 8.0 + 3 * wave, 31.0 + 14 * self._wave(name + "99", 25)
        figures = {
            "gateway_readers": readers,
            "gateway_deliveries": round(deliveries, 1),
            "gateway_publications": round(messages, 1),
            "gateway_connects": round(6 + 4 * wave, 1),
            "gateway_delay_seconds.p50": round(p50 / 1000, 4),
            "gateway_delay_seconds.p99": round(p99 / 1000, 4),
            "gateway_closes.went_away": round(5 + 3 * wave, 1),
            "gateway_closes.slow_reader": round(max(0.0, wave - 0.8), 2),
            "gateway_holes_open": 0,
            "gateway_recovered_messages": round(max(0.0, 2 * wave - 1.7), 2),
        }
        return {
            "name": name,
            "state": state,
            "waiting_for": waiting_for,
            "readers": readers,
            "capacity": _CAPACITY,
            "messages_per_second": round(messages, 1),
            "deliveries_per_second": round(deliveries, 1),
            "connects_per_second": round(6 + 4 * wave, 1) if lives else 0.0,
            "delay_p50_ms": round(p50, 1) if lives else None,
            "delay_p99_ms": round(p99, 1) if lives else None,
            "engine": "native",
            "version": VERSION,
            "age_ms": self._age(name, region),
            "started_ms": self._began_ms - 86_400_000 - n * 61_000,
            "figures": figures if lives else {},
        }

    def _service(self, region: str, kind: str, n: int) -> dict[str, Any]:
        name = f"{region}-{kind}-{n}"
        state, waiting_for = self._state(name)
        wave = self._wave(name, 20)
        figures = {
            "router": {
                "router_stage_left_messages.route": round(67 + 6 * wave, 1),
                "router_rejected_messages.too_large": 0.0,
                "router_waiting_messages": round(3 + 3 * wave),
                "router_store_write_seconds.p50": 0.0021,
                "router_store_write_seconds.p99": round(0.009 + 0.004 * wave, 4),
            },
            "mailbox": {"mailbox_marks": round(4 + 2 * wave, 1), "mailbox_waiting_marks": 0},
            "frontdesk": {"frontdesk_endpoints_answers.some": round(212 + 40 * wave, 1)},
            "keeper": {"shovels_restarts": 0.0, "shovels_arrived_canaries": 9.0},
            "scaler": {"scaler_boxes_wanted": self.boxes},
        }
        return {
            "name": name,
            "kind": kind,
            "version": VERSION,
            "state": state,
            "waiting_for": waiting_for,
            "age_ms": self._age(name, region),
            "started_ms": self._began_ms - 90_000_000 - n * 3_700_000,
            "figures": figures.get(kind, {}) if state != "gone" else {},
        }

    def _cluster(self, region: str, kind: str) -> dict[str, Any]:
        names = [f"{region}-{kind}-{n}" for n in range(1, (3 if kind == "core" else 2) + 1)]
        return {
            "name": f"{region}/{kind}",
            "nodes": [
                {
                    "node": name,
                    "running": name not in self.down_nodes,
                    "alarm": self.alarms.get(name, ""),
                }
                for name in names
            ],
        }

    def _shovels(self, region: str) -> list[dict[str, Any]]:
        core, client = f"{region}/core", f"{region}/client"
        found = []
        for n in (1, 2):
            found.append(self._shovel(f"shovel.publish.{region}.{n}", core, client, 66))
            found.append(self._shovel(f"shovel.receipts.{region}.{n}", client, core, 20))
            for other in self.regions:
                if other != region:
                    name = f"shovel.publish.{other}.{n}"
                    found.append(self._shovel(name, core, f"{other}/client", 21))
                    name = f"shovel.outbound.{other}.{n}"
                    found.append(self._shovel(name, core, f"{other}/core", 66))
        for n in range(1, self.boxes + 1):
            box = f"{region}-retail-{n}"
            if box in self.silent or box in self.starting:
                continue
            for feed in (1, 2):
                found.append(self._shovel(f"postoffice.{feed}", box, core, 134))
            found.append(self._shovel("upstream", box, box, 1))
        return found

    def _shovel(self, name: str, runs_on: str, source: str, rate: float) -> dict[str, Any]:
        whole = f"{runs_on}/{name}"
        wave = self._wave(whole, 15)
        age = self.slow_shovels.get(whole, int(self._between(whole + "age", 100, 1300)))
        return {
            "name": name,
            "runs_on": runs_on,
            "source": source,
            "state": "running",
            "canary_age_ms": age,
            "messages_per_second": round(rate * (1 + 0.12 * wave), 1),
            "restarts": 0,
        }

    def _busy(self, region: str, name: str, rate: float) -> dict[str, Any]:
        wave = self._wave(region + name, 30)
        return {"name": name, "messages_per_second": round(rate * (1 + 0.2 * wave), 1)}

    def _series(self, region: str, at: list[int]) -> dict[str, list[float | None]]:
        seconds = [ms / 1000 for ms in at]
        lean = 1.0 if region == self.regions[0] else 0.72
        capacity = _CAPACITY * self.boxes

        def curve(low: float, high: float, period: float, shift: float = 0.0) -> list[float | None]:
            middle, swing = (low + high) / 2, (high - low) / 2
            rng = random.Random(f"{region}{low}{high}{period}")
            waves = [middle + swing * math.sin(s / period + shift) for s in seconds]
            return [round(lean * (wave + rng.gauss(0, swing / 18)), 2) for wave in waves]

        def bursts(height: float, every: int) -> list[float | None]:
            return [height if int(s / 5) % every == 0 else 0.0 for s in seconds]

        return {
            "readers": curve(0.38 * capacity, 0.55 * capacity, 900),
            "messages_per_second": curve(105, 160, 300),
            "deliveries_per_second": curve(3.2e6, 5.6e6, 420),
            "delay_p50_ms": curve(7, 11, 260),
            "delay_p99_ms": curve(22, 48, 310),
            "connects_per_second": curve(160, 420, 500),
            "closes.went_away": curve(120, 300, 500, 1.0),
            "closes.drain": bursts(40.0 * lean, 140),
            "closes.slow_reader": curve(0, 3, 350),
            "holes_open": bursts(2.0, 90),
            "repaired_per_second": bursts(1.4, 90),
            "store_p99_ms": curve(6, 14, 380),
        }

    def _wave(self, name: str, period: float) -> float:
        """Return a value in -1..1 that changes slowly, and differently for each name."""
        phase = self._phases.get(name)
        if phase is None:
            phase = self._phases[name] = random.Random(name).uniform(0, math.tau)
        return math.sin((self.now_ms - self._began_ms) / 1000 / period + phase)

    def _between(self, name: str, low: float, high: float) -> float:
        return low + (high - low) * (0.5 + 0.5 * self._wave(name, 0.7))

    def _region_of(self, name: str) -> str:
        return next((each for each in self.regions if name.startswith(f"{each}-")), "")


# Two of each kind, but of these one.
_SERVICES: Final = tuple(
    (kind, n) for kind in sorted(CORE) for n in ((1,) if kind in ("keeper", "scaler") else (1, 2))
)


def _totals(boxes: list[dict[str, Any]]) -> dict[str, Any]:
    ready = [box for box in boxes if box["state"] == "ready"]
    delays = sorted(box["delay_p50_ms"] for box in ready)
    tails = [box["delay_p99_ms"] for box in ready]
    return {
        "readers": sum(box["readers"] for box in boxes),
        "capacity": sum(box["capacity"] for box in ready),
        "boxes": len(boxes),
        "boxes_ready": len(ready),
        "messages_per_second": max((box["messages_per_second"] for box in boxes), default=0.0),
        "deliveries_per_second": round(sum(box["deliveries_per_second"] for box in boxes), 1),
        "connects_per_second": round(sum(box["connects_per_second"] for box in boxes), 1),
        "delay_p50_ms": delays[len(delays) // 2] if delays else None,
        "delay_p99_ms": max(tails, default=None),
    }
