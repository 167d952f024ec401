"""A frontdesk's picture of the fabric as values, and the reports of processes."""

from __future__ import annotations

import dataclasses
from typing import Any

from loads import load

from newsfabric.messages.control import LoadReport
from newsfabric.messages.reports import NodeSeen, Report, ShovelSeen
from wholesale.frontdesk.board.picture import FrontdeskPlace, Picture

NOW_MS = 1_735_689_600_000
PLACE = FrontdeskPlace(
    frontdesk="oregon-frontdesk-1",
    region="oregon",
    version="1.0",
    frontdesk_url="http://oregon.example",
    planned={"oregon/client": ["oregon-client-1"], "oregon/core": ["oregon-core-1"]},
    others={"dublin": "http://dublin.example"},
)
ROUTER = Report(
    region="oregon",
    name="oregon-router-1",
    kind="router",
    version="1.0",
    started_ms=1,
    sent_ms=1,
    state="ready",
)
BOX = dataclasses.replace(ROUTER, kind="box", name="oregon-retail-1", engine="native")
KEEPER = dataclasses.replace(ROUTER, kind="keeper", name="oregon-shovels")
SHOVEL = ShovelSeen(
    name="publish.oregon.1",
    runs_on="oregon/core",
    source="oregon/client",
    state="running",
    canary_age_ms=100,
    messages_per_second=12.5,
    restarts=0,
)
NODE = NodeSeen(cluster="oregon/core", node="oregon-core-1", running=True, alarm="")
LOAD = load(connections=30, deliveries_per_second=60.0, connects_per_second=2.0)


class PlayedPicture:
    """A picture that receives reports from time 0 on, and is updated every quarter of a second."""

    def __init__(self, place: FrontdeskPlace = PLACE) -> None:
        self.picture = Picture(place, 0.0, NOW_MS)
        self.now = 0.0
        self.core = self.client = True
        self.picture.links(core=True, client=True, now=0.0)

    def hear(self, *reports: Report | LoadReport) -> list[bool]:
        """Report ``reports`` to the picture; return for each whether it was accepted."""
        return [
            self.picture.load(one, self.now)
            if isinstance(one, LoadReport)
            else self.picture.report(one, self.now)
            for one in reports
        ]

    def pass_by(self, seconds: float, *reports: Report | LoadReport) -> None:
        """Let time pass; ``reports`` is reported again each second."""
        sent_ms = 1
        for step in range(round(seconds * 4)):
            if step % 4 == 0:
                sent_ms += 1
                self.hear(*(_later(one, round(self.now * 1000) + sent_ms) for one in reports))
            self.now += 0.25
            self.update_events()

    def update_events(self) -> None:
        self.picture.links(core=self.core, client=self.client, now=self.now)
        self.picture.update_events(self.now)

    def board_document(self, **options: Any) -> dict[str, Any]:
        return self.picture.picture_document(self.now, NOW_MS + round(self.now * 1000), **options)

    def region(self) -> dict[str, Any]:
        return self.picture.region(self.now, NOW_MS + round(self.now * 1000))

    def events(self) -> list[tuple[str, str]]:
        return [(event["kind"], event["who"]) for event in self.board_document(own=True)["events"]]

    def texts(self) -> list[str]:
        return [event["text"] for event in self.board_document(own=True)["events"]]


def _later(report: Report | LoadReport, sent_ms: int) -> Report | LoadReport:
    return dataclasses.replace(report, sent_ms=sent_ms)
