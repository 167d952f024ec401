"""A scaler over a core in memory: its input, its reports and its orders."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
from collections.abc import AsyncIterator, Iterable
from typing import Any

import pytest
from clusters import core_cluster, reported
from core_cluster import until
from fleets import report
from metric_values import value
from tornado.httpclient import AsyncHTTPClient, HTTPRequest

from newsfabric.amqp import Message
from newsfabric.amqp.stub import StubBroker, StubLink
from newsfabric.messages.control import LoadReport, decode_drain, load_key
from newsfabric.messages.reports import decode_report, report_key
from wholesale.scaler import counters
from wholesale.scaler.choice import Decision
from wholesale.scaler.drivers import Instance
from wholesale.scaler.plan import ScalingPlan
from wholesale.scaler.service import ScalerService, ScalerSettings

SETTINGS = ScalerSettings(
    name="oregon-scaler-1",
    region="oregon",
    login="scaler.oregon",
    driver="machines",
    plan=ScalingPlan(per_box=1000, zones=1, least=1, most=9, boot=1.0, drain=0.0, calm=1.0),
)


class RecordingDriver:
    """A driver that records its orders."""

    def __init__(self) -> None:
        self.there: dict[str, float] = {}
        self.wanted: list[int] = []
        self.ended: list[str] = []

    async def boxes(self) -> tuple[Instance, ...] | None:
        return tuple(Instance(name, age) for name, age in self.there.items())

    async def want(self, count: int) -> None:
        self.wanted.append(count)

    async def end(self, names: Iterable[str]) -> None:
        self.ended += names

    async def close(self) -> None:
        pass


@dataclasses.dataclass
class ScalerStage:
    broker: StubBroker
    link: StubLink
    machines: RecordingDriver
    service: ScalerService

    def note_report(self, *reports: LoadReport) -> None:
        for each in reports:
            self.broker.publish("upstream", reported(each))

    async def get(self, path: str, **headers: str) -> Any:
        request = HTTPRequest(f"http://127.0.0.1:{self.service.port}{path}", headers=headers)
        return await AsyncHTTPClient().fetch(request, raise_error=False)

    async def scale(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((await self.get("/scale")).body)
        return found


@pytest.fixture
async def place() -> AsyncIterator[ScalerStage]:
    broker = core_cluster()
    link, machines = broker.connect(), RecordingDriver()
    async with _serving(ScalerService(SETTINGS, core=link, driver=machines)) as service:
        yield ScalerStage(broker, link, machines, service)


@contextlib.asynccontextmanager
async def _serving(service: ScalerService) -> AsyncIterator[ScalerService]:
    stop = asyncio.Event()
    task = asyncio.create_task(service.serve(stop))
    await service.listening.wait()
    await until(lambda: service.readiness().ready)
    try:
        yield service
    finally:
        stop.set()
        await task


async def test_scale_says_what_is_wanted_with_the_sums(place: ScalerStage) -> None:
    await until(lambda: place.service.acting.well)
    place.note_report(report("b1", 800), report("b2", 700))
    scaler = place.service.scaler
    await until(lambda: scaler.decision and scaler.decision.requirement.boxes == 3)
    document = await place.scale()
    assert (document["scaler"], document["region"], document["state"]) == (
        "oregon-scaler-1",
        "oregon",
        "well",
    )
    sums = {line["name"]: line["value"] for line in document["sums"]}
    assert (sums["readers"], sums["filled"], sums["wanted"]) == (1500, 3, 3)
    assert document["counts"] == {"ready": 2}
    assert document["driver"]["name"] == "machines"
    assert document["plan"]["per_box"] == 1000
    assert [box["name"] for box in document["boxes"]] == ["b1", "b2"]


async def test_what_a_box_reports_in_anothers_name_is_dropped(place: ScalerStage) -> None:
    before = value(counters.REPORT_FORGED), value(counters.REPORT_BAD)
    place.broker.publish("upstream", reported(report("b1", 900), by="b2"))
    place.broker.publish("upstream", Message(load_key("oregon", "b1"), b"nonsense"))
    place.note_report(report("b3", 5))
    await until(lambda: place.service.scaler.view and place.service.scaler.view.boxes)
    assert [box["name"] for box in (await place.scale())["boxes"]] == ["b3"]
    after = value(counters.REPORT_FORGED), value(counters.REPORT_BAD)
    assert after == (before[0] + 1, before[1] + 1)


async def test_a_decision_is_sent_to_the_driver_and_the_boxes(
    place: ScalerStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    tap = place.broker.tap("orders")
    scaler = place.service.scaler
    decide = scaler.decide

    def decided(**given: Any) -> Decision:
        return dataclasses.replace(decide(**given), want=4, drain=("b1", "b2"), end=("b3",))

    monkeypatch.setattr(scaler, "decide", decided)
    await until(lambda: place.machines.wanted and place.machines.ended)
    assert (place.machines.wanted[0], place.machines.ended[0]) == (4, "b3")
    orders = [decode_drain(message) for message in place.broker.pop_messages(tap)]
    assert [(o.region, o.box, o.by) for o in orders[:2]] == [
        ("oregon", "b1", "oregon-scaler-1"),
        ("oregon", "b2", "oregon-scaler-1"),
    ]


class Blocked:
    """A core in alarm: it accepts nothing, and doesn't answer."""

    def __init__(self) -> None:
        self.asked = 0

    async def publish(self, exchange: str, message: Message) -> None:
        self.asked += 1
        await asyncio.Event().wait()


async def test_a_core_that_takes_no_orders_holds_up_the_decisions_for_a_second_at_most(
    place: ScalerStage,
) -> None:
    core: Any = Blocked()
    boxes = tuple(f"b{n}" for n in range(50))
    failed = value(counters.DRAINS.labels("failed"))
    async with asyncio.timeout(60):
        await place.service._order(core, boxes)
    assert core.asked == len(boxes)
    assert value(counters.DRAINS.labels("failed")) == failed + len(boxes)


async def test_without_its_core_it_decides_nothing_and_isnt_ready(place: ScalerStage) -> None:
    place.note_report(report("b1", 900))
    await until(lambda: place.service.scaler.decision)
    place.link.lose()
    assert place.service.decide(now=5.0) is None or place.link.connected
    # Until it has listened again for a while, nothing is asked for.
    decision = place.service.decide(now=6.0)
    assert decision is None or decision.want is None


async def test_it_reports_as_every_process_does(place: ScalerStage) -> None:
    tap = place.broker.tap("upstream")
    seen: list[Message] = []

    def reports() -> list[Message]:
        seen.extend(place.broker.pop_messages(tap))
        key = report_key("oregon", "oregon-scaler-1")
        return [message for message in seen if message.topic == key]

    await until(reports)
    report = decode_report(reports()[0])
    assert (report.kind, report.name, report.state) == ("scaler", "oregon-scaler-1", "ready")
    assert reports()[0].properties.user_id == "scaler.oregon"
    assert "scaler_wanted_boxes" in report.figures


async def test_its_port_has_metrics_and_is_for_programs_alone(place: ScalerStage) -> None:
    text = (await place.get("/metrics")).body.decode()
    assert "newsfabric_scaler_wanted_boxes" in text
    assert 'newsfabric_scaler_boxes{kind="silent"}' in text
    assert (await place.get("/healthz/ready")).code == 200
    assert (await place.get("/scale", Origin="http://evil.example")).code == 403
    assert (await place.get("/nothing")).code == 404
