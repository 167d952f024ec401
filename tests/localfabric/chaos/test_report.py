import json
from pathlib import Path

import pytest

from localfabric.chaos.delivery_record import (
    Arrival,
    DeliveryRecord,
    ReaderProfile,
    RecordedConnection,
    RecordedMessage,
    ReportedGap,
)
from localfabric.chaos.report import broken, write_report
from localfabric.chaos.run import ChaosOptions, ChaosOutcome, InjectedFault
from localfabric.chaos.schedule import Fault

ANN = ReaderProfile(name="ann", habit="staying", topics=frozenset({"news.world"}))
BOB = ReaderProfile(name="bob", habit="roaming", topics=frozenset({"news.world"}))
TRACE = "time  ms\n12:00 +7  stored"


@pytest.fixture
def outcome() -> ChaosOutcome:
    """Return a run in which ann lost message 1, after a gateway was killed."""
    record = DeliveryRecord([ANN, BOB])
    for n in (0, 1):
        record.sent(
            RecordedMessage(
                n=n, topic="news.world", klass="gold", region="oregon", sent=5.0, receipted=5.1,
                id=f"id-{n}", router="oregon-router-1",
            )
        )  # fmt: skip
    record.connected("ann", RecordedConnection(1, 1.0, "ws://one/"))
    record.connected("ann", RecordedConnection(2, 5.5, "ws://two/"))
    for reader, n in (("ann", 0), ("bob", 0), ("bob", 1)):
        record.arrived(Arrival(reader, 1, n, 5.2, "new"))
    record.gap(ReportedGap("ann", 2, "news.world", 6.0, "store"))
    fault = Fault(at=4.0, lasts=2.0, verb="kill", kind="gateway", name="oregon-retail-1-gateway")
    return ChaosOutcome(
        run="abc",
        started_at=0.0,
        options=ChaosOptions(minutes=1.0, seed=1, rate=2.0, readers=2),
        seconds=60.0,
        record=record,
        faults=(InjectedFault(fault=fault, began=4.0, healed=6.0),),
        settled_after=None,
        faulty=(),
        traces={1: TRACE},
    )


def test_a_broken_promise_is_reported_with_its_message_and_the_trace(outcome: ChaosOutcome) -> None:
    (text,) = broken(outcome, outcome.record.account())
    first, *rest = text.splitlines()
    assert "lost: gold message abc-1 on news.world" in first
    assert "for 1 readers (ann), while 1 had it" in first
    assert "nearest fault: kill oregon-retail-1-gateway at 4.0 s" in first
    assert [line.strip() for line in rest] == TRACE.splitlines()


def test_the_report_has_the_traces_and_the_reasons_of_readers_gaps(
    outcome: ChaosOutcome, tmp_path: Path
) -> None:
    account = write_report(outcome, tmp_path)
    assert not account.kept
    page = (tmp_path / "report.md").read_text()
    assert f"```\n{TRACE}\n```" in page
    assert "| 6.0 s | ann | news.world | ws://two/ | store |" in page
    document = json.loads((tmp_path / "report.json").read_text())
    (wrong,) = document["account"]["wrong"]
    assert wrong["trace"] == TRACE.splitlines()
    gap = {"at": 6.0, "topic": "news.world", "reason": "store"}
    assert document["gaps"] == [{"reader": "ann", **gap}]
    assert wrong["readers"][0]["told_of_gaps"] == [gap]


def test_who_was_told_wrongly_is_in_the_report_and_breaks_the_promise(
    outcome: ChaosOutcome, tmp_path: Path
) -> None:
    # The gateway that ann asked had given the message to bob.
    outcome.record.connected("bob", RecordedConnection(1, 1.0, "ws://two/"))
    outcome.record.recovered("ann", "news.world", asked=5.6, at=5.7)
    account = write_report(outcome, tmp_path)
    assert [(w.what, w.n, w.readers) for w in account.wrong] == [
        ("lost", 1, ("ann",)),
        ("told wrongly", 1, ("ann",)),
    ]
    page = (tmp_path / "report.md").read_text()
    assert "1 lost, 0 doubled, 1 told wrongly" in page
    assert "told wrongly: gold message abc-1" in page
    # A message that is told wrongly and not lost breaks the promise, too.
    outcome.record.disconnected("ann", 40.0)
    outcome.record.gap(ReportedGap("ann", 3, "news.world", 50.0, "store"))
    outcome.record.arrived(Arrival("ann", 3, 1, 51.0, "new"))
    assert [w.what for w in outcome.record.account().wrong] == ["told wrongly"]
    assert not outcome.record.account().kept


def test_a_message_is_overdue_when_its_receipt_is_old_and_somebody_lacks_it(
    outcome: ChaosOutcome,
) -> None:
    assert [m.n for m in outcome.record.overdue(at=65.2, after=60.0)] == [1]
    assert [m.n for m in outcome.record.overdue(at=65.0, after=60.0)] == []


def test_what_an_absent_reader_alone_lacks_isnt_overdue() -> None:
    away = ReaderProfile(name="eve", habit="absent", topics=ANN.topics, goes_away=True)
    record = DeliveryRecord([ANN, away])
    record.sent(
        RecordedMessage(
            n=0, topic="news.world", klass="gold", region="oregon", sent=5.0, receipted=5.1
        )
    )
    record.arrived(Arrival("ann", 1, 0, 5.2, "new"))
    assert [m.n for m, _ in record.missing()] == [0]
    assert list(record.overdue(at=600.0, after=60.0)) == []
