"""A fleet of boxes as a scaler sees it, second by second."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from loads import load

from newsfabric.messages.control import LoadReport
from wholesale.scaler.choice import Decision
from wholesale.scaler.deciding import Scaler
from wholesale.scaler.drivers import Instance
from wholesale.scaler.plan import ScalingPlan

PLAN = ScalingPlan(
    per_box=1000, headroom=0.3, boot=60.0, drain=60.0, zones=1, least=1, most=50, calm=120.0
)


def report(box: str = "b1", connections: int = 0, **fields: object) -> LoadReport:
    return load(**{"box": box, "connections": connections, "capacity": 1000} | fields)


class Fleet:
    """A scaler and its input: ``reports`` has each box's report, None for a silent box."""

    def __init__(self, plan: ScalingPlan = PLAN, *, now: float = 10_000.0) -> None:
        self.plan = plan
        self.scaler = Scaler("oregon", plan)
        self.now = now
        self.reports: dict[str, LoadReport | None] = {}
        self.born: dict[str, float] | None = {}
        self.zones: dict[str, str] = {}
        self.driver_well = True

    def add(self, *reports: LoadReport, age: float = 5000.0) -> None:
        for each in reports:
            self.reports[each.box] = each
            if self.born is not None:
                self.born[each.box] = self.now - age

    def change(self, box: str, **fields: object) -> None:
        report = self.reports[box]
        assert report is not None
        self.reports[box] = dataclasses.replace(report, **fields)  # type: ignore[arg-type]

    def hush(self, *boxes: str) -> None:
        for box in boxes:
            self.reports[box] = None

    def list(self) -> None:
        if self.born is None:
            self.scaler.listed(None, now=self.now)
            return
        instances = [
            Instance(name, self.now - at, self.zones.get(name, ""))
            for name, at in self.born.items()
        ]
        self.scaler.listed(instances, now=self.now)

    def second(self) -> Decision:
        """Let one second pass."""
        self.now += 1.0
        for report in self.reports.values():
            if report is not None:
                at = dataclasses.replace(report, sent_ms=int(self.now * 1000))
                self.scaler.note_report(at, now=self.now)
        self.list()
        return self.scaler.decide(now=self.now, driver_well=self.driver_well)

    def run(self, seconds: float) -> Decision:
        """Let ``seconds`` pass; return the last decision."""
        for decision in self.seconds(seconds):
            last = decision
        return last

    def seconds(self, seconds: float) -> Iterable[Decision]:
        for _ in range(int(seconds)):
            yield self.second()

    def kinds(self) -> dict[str, str]:
        assert self.scaler.view is not None
        return {box.name: box.kind for box in self.scaler.view.boxes}
