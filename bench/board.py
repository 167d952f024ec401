"""Costs of the operations board: for the processes that report, and for the frontdesk.

A thousand boxes report each second, five times the largest region so far. Reports are passed in as
a consumer delivers them: the figures don't contain the cost of the broker and of the AMQP
connection. The floor is one pass of orjson over the same bytes: nothing in Python can decode
reports more quickly.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Final

import orjson

from bench.rows import BenchRow
from gateway.process import measures
from newsfabric.amqp.message import Message
from newsfabric.messages.control import LoadReport, decode_load, encode_load
from newsfabric.messages.reports import Report, ShovelSeen, decode_report, encode_report
from newsfabric.process.figures import ProcessFigures
from newsfabric.topics import CLASSES
from newsfabric.topology.roles import user_name
from wholesale.frontdesk.board.picture import FrontdeskPlace, Picture
from wholesale.frontdesk.presence.presence import login_of

BOXES: Final = 1000
SECONDS: Final = 10
LOOKS: Final = 4
REGION: Final = "oregon"
PLACE: Final = FrontdeskPlace(
    frontdesk="oregon-frontdesk-1",
    region=REGION,
    version="bench",
    frontdesk_url="http://127.0.0.1:1",
    planned={},
    others={},
)


def measure() -> list[BenchRow]:
    """Return all rows."""
    figures = _busy_figures()
    loads = [encode_load(_load(n)) for n in range(BOXES)]
    reports = [encode_report(_report(n, figures)) for n in range(BOXES)]
    report_bytes = len(reports[0].body) + len(loads[0].body)
    picture = Picture(PLACE, 0.0, 0)
    picture.links(core=True, client=True, now=0.0)
    hearing = _cpu(lambda second: _hear(picture, loads, reports, second), SECONDS)
    reading = _cpu(lambda second: [orjson.loads(m.body) for m in (*loads, *reports)], SECONDS)
    updating = _cpu(lambda second: _update_events(picture), SECONDS)
    document = orjson.dumps(picture.picture_document(SECONDS, 0))
    making = _cpu(lambda second: orjson.dumps(picture.picture_document(SECONDS, 0)), SECONDS)
    gateways = ProcessFigures(measures.FIGURES)
    reporting = _cpu(lambda second: _speak(gateways, second), 200)
    return [
        BenchRow("a box's words, each second", report_bytes, "bytes", digits=0),
        BenchRow(
            "a box in the board's document", len(document) / BOXES, "bytes", digits=0, at_most=2048
        ),
        _share("a gateway that says its figures each second", reporting, at_most=1.0),
        _share(f"a frontdesk that hears {BOXES:,} boxes", hearing, floor=reading),
        _share("… looks four times a second who is silent", updating),
        _share("… makes the document each second, if anybody watches", making),
    ]


def _cpu(work: Callable[[float], object], seconds: int) -> float:
    """Return the seconds of processor time that ``work`` takes for one second of reports."""
    work(0.0)
    began = time.process_time()
    for second in range(seconds):
        work(float(second + 1))
    return (time.process_time() - began) / seconds


def _share(
    figure: str, seconds: float, *, at_most: float | None = None, floor: float | None = None
) -> BenchRow:
    return BenchRow(
        figure,
        100 * seconds,
        "% of a core",
        digits=2,
        at_most=at_most,
        floor=None if floor is None else 100 * floor,
    )


def _busy_figures() -> dict[str, float]:
    """Return the figures of a gateway with a value for every figure that a gateway can report."""
    figures = ProcessFigures(measures.FIGURES)
    figures.read(0.0)
    for transport in ("websocket", "sockjs", "sse"):
        measures.READERS.labels(transport).set(33_333)
        measures.DELIVERIES.labels(transport).inc(12_345)
    for reason in ("reader", "slow_reader", "drain", "rebalance", "invalid_token"):
        measures.CLOSES.labels(reason).inc(7)
    for topic_class in CLASSES:
        measures.PUBLICATIONS.labels(topic_class).inc(17)
        for way in ("feed", "store"):
            measures.DELAY.labels(topic_class, REGION, way).observe(0.0123, 1000)
    return figures.read(1.0)


def _speak(figures: ProcessFigures, second: float) -> None:
    encode_report(_report(int(second), figures.read(second)))


def _hear(picture: Picture, loads: list[Message], reports: list[Message], now: float) -> None:
    for message in loads:
        load = decode_load(message)
        if message.properties.user_id in (None, user_name("box", load.box)):
            picture.load(load, now)
    for message in reports:
        report = decode_report(message)
        if message.properties.user_id in (None, login_of(report)):
            picture.report(report, now)


def _update_events(picture: Picture) -> None:
    for n in range(LOOKS):
        picture.update_events(SECONDS + n / LOOKS)


def _load(n: int) -> LoadReport:
    base = f"box-{n}.edge.example.org"
    return LoadReport(
        region=REGION,
        box=f"oregon-retail-{n}",
        state="ready",
        connections=99_999,
        capacity=100_000,
        deliveries_per_second=12_345.6,
        connects_per_second=12.3,
        sockjs_url=f"https://{base}/sockjs",
        websocket_url=f"wss://{base}/websocket",
        sse_url=f"https://{base}/events",
        sent_ms=1_735_689_600_000,
    )


def _report(n: int, figures: dict[str, float]) -> Report:
    box = f"oregon-retail-{n}"
    feed = ShovelSeen(
        name="postoffice.1",
        runs_on=box,
        source="oregon/core",
        state="running",
        canary_age_ms=512,
        messages_per_second=None,
        restarts=0,
    )
    shovels = (
        feed,
        dataclasses.replace(feed, name="postoffice.2"),
        dataclasses.replace(feed, name="upstream", source=box),
    )
    return Report(
        region=REGION,
        name=box,
        kind="box",
        version="0.1.0",
        started_ms=1_735_689_600_000,
        sent_ms=1_735_689_600_000,
        state="ready",
        engine="native",
        figures=figures,
        shovels=shovels,
    )
