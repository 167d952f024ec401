"""A process reports its state each second, and no failure of that disturbs it."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest
from clusters import core_cluster
from core_cluster import until
from metric_values import value
from prometheus_client import CollectorRegistry, Counter, Gauge

from newsfabric.amqp.stub import StubBroker
from newsfabric.messages.reports import MAX_FIGURES, MAX_REASONS, Report, decode_report
from newsfabric.process.figures import ProcessFigures, Wanted
from newsfabric.process.reporting import IN_FLIGHT, Reporting, Speaker, make_report
from newsfabric.process.service import Readiness

SPEAKER = Speaker(
    kind="router", name="oregon-router-1", region="oregon", login="router.oregon", started_ms=5
)
READY = Readiness(True)


@dataclasses.dataclass
class ReportingProcess:
    """A process with one gauge that reports to a broker in memory."""

    more: dict[str, Any] | Exception = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        self.registry = CollectorRegistry()
        self.waiting = Gauge("newsfabric_router_waiting", "…", registry=self.registry)
        self.outcomes = Counter("newsfabric_reports", "…", ["outcome"], registry=self.registry)
        self.heard: list[Report] = []
        self.drains = False
        self.reporting = Reporting(
            SPEAKER,
            figures=ProcessFigures([Wanted(self.waiting)], self.registry),
            readiness=lambda: READY,
            draining=lambda: self.drains,
            more=self._more,
            outcomes=self.outcomes,
            on_report=self.heard.append,
        )

    async def _more(self) -> dict[str, Any]:
        if isinstance(self.more, Exception):
            raise self.more
        return dict(self.more)

    def count(self, outcome: str) -> float:
        return value(self.outcomes.labels(outcome))


@pytest.fixture
def core() -> StubBroker:
    return core_cluster()


async def test_a_report_reaches_frontdesks_under_the_processs_login(core: StubBroker):
    process = ReportingProcess()
    process.waiting.set(3)
    tap = core.tap("upstream", "_fabric.report.oregon.*")
    await process.reporting.once(await core.connect().publisher(in_flight=IN_FLIGHT))
    await until(lambda: core.depth(tap))
    (message,) = core.pop_messages(tap)
    assert message.properties.user_id == "router.oregon"
    report = decode_report(message)
    assert (report.name, report.state, report.started_ms) == ("oregon-router-1", "ready", 5)
    assert report.figures == {"router_waiting": 3.0}
    assert process.heard == [report]
    assert process.count("sent") == 1


@pytest.mark.parametrize(("drains", "last"), [(True, ["draining"]), (False, [])])
async def test_a_process_that_ends_while_it_drains_says_so_once_more(
    core: StubBroker, drains: bool, last: list[str]
):
    process = ReportingProcess()
    tap = core.tap("upstream", "_fabric.report.oregon.*")
    running = asyncio.create_task(process.reporting.run(core.connect()))
    await until(lambda: core.depth(tap))
    process.drains = drains
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert [decode_report(message).state for message in core.pop_messages(tap)] == ["ready", *last]


async def test_without_a_link_a_report_is_lost_and_heard_by_the_process_itself(core: StubBroker):
    process = ReportingProcess()
    link = core.connect()
    publisher = await link.publisher(in_flight=IN_FLIGHT)
    await link.close()
    await process.reporting.once(publisher)
    assert process.count("lost") == 1
    assert len(process.heard) == 1


async def test_a_report_that_fails_is_counted_and_reported_once_a_minute(
    core: StubBroker, expect_error_log: Any
):
    expect_error_log("report failed")
    process = ReportingProcess(more=ZeroDivisionError("x"))
    publisher = await core.connect().publisher(in_flight=IN_FLIGHT)
    for _ in range(5):
        await process.reporting.once(publisher)
    assert process.count("failed") == 5


async def test_it_reports_until_it_is_cancelled(core: StubBroker):
    process = ReportingProcess()
    tap = core.tap("upstream")
    task = asyncio.create_task(process.reporting.run(core.connect()))
    async with asyncio.timeout(60):
        await until(lambda: core.depth(tap))
    (message,) = core.pop_messages(tap)
    assert decode_report(message).name == "oregon-router-1"
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_more_can_say_another_state_and_adds_figures():
    process = ReportingProcess(
        more={"state": "starting", "engine": "native", "figures": {"x": 1.0}}
    )
    report = await process.reporting.report()
    assert (report.state, report.engine) == ("starting", "native")
    assert report.figures == {"router_waiting": 0.0, "x": 1.0}


async def test_of_two_certificates_the_one_that_ends_first_is_reported():
    ends, later = "tls_certificate_expiry_timestamp_seconds", 2_000_000_000.0
    for gateways, sent in ((later + 1, later), (later - 1, later - 1)):
        process = ReportingProcess(
            more={"figures": {f"{ends}.authority": gateways, "router_waiting": 7.0}}
        )
        own = Gauge(f"newsfabric_{ends}", "…", ["use"], registry=process.registry)
        own.labels("authority").set(later)
        wanted = [Wanted(process.waiting), Wanted(own, "use")]
        process.reporting = Reporting(
            SPEAKER,
            figures=ProcessFigures(wanted, process.registry),
            readiness=lambda: READY,
            more=process._more,
            outcomes=process.outcomes,
        )
        report = await process.reporting.report()
        assert report.figures == {"router_waiting": 7.0, f"{ends}.authority": sent}


async def test_what_it_says_is_bounded():
    figures = {f"f{n}": 1.0 for n in range(2 * MAX_FIGURES)}
    process = ReportingProcess(more={"figures": figures})
    assert len((await process.reporting.report()).figures) == MAX_FIGURES
    many = Readiness(False, tuple("x" * 999 for _ in range(100)))
    report = make_report(SPEAKER, many, {}, draining=False, sent_ms=1)
    assert len(report.waiting_for) == MAX_REASONS
    assert {len(why) for why in report.waiting_for} == {255}


@pytest.mark.parametrize(
    ("ready", "draining", "state"),
    [(True, False, "ready"), (False, False, "starting"), (True, True, "draining")],
)
def test_the_state_follows_from_readiness_and_drain(ready: bool, draining: bool, state: str):
    report = make_report(SPEAKER, Readiness(ready), {}, draining=draining, sent_ms=1)
    assert report.state == state
