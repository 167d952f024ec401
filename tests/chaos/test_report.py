import json
from pathlib import Path

import pytest

from newsfabric.chaos.books import Arrival, Books, Connection, Gap, Message, Reader
from newsfabric.chaos.report import broken, write_report
from newsfabric.chaos.run import ChaosOptions, Done, Outcome
from newsfabric.chaos.schedule import Fault

ANN = Reader(name="ann", habit="staying", topics=frozenset({"news.world"}))
BOB = Reader(name="bob", habit="roaming", topics=frozenset({"news.world"}))
TRACE = "time  ms\n12:00 +7  stored"


@pytest.fixture
def outcome() -> Outcome:
    """A run in which ann lost message 1, after a gateway was killed."""
    books = Books([ANN, BOB])
    for n in (0, 1):
        books.sent(
            Message(
                n=n, topic="news.world", klass="gold", region="oregon", sent=5.0, receipted=5.1,
                id=f"id-{n}", router="oregon-router-1",
            )
        )  # fmt: skip
    books.connected("ann", Connection(1, 1.0, "ws://one/"))
    books.connected("ann", Connection(2, 5.5, "ws://two/"))
    for reader, n in (("ann", 0), ("bob", 0), ("bob", 1)):
        books.arrived(Arrival(reader, 1, n, 5.2, "new"))
    books.gap(Gap("ann", 2, "news.world", 6.0, "store"))
    fault = Fault(at=4.0, lasts=2.0, verb="kill", kind="gateway", name="oregon-retail-1-gateway")
    return Outcome(
        run="abc",
        started_at=0.0,
        options=ChaosOptions(minutes=1.0, seed=1, rate=2.0, readers=2),
        seconds=60.0,
        books=books,
        faults=(Done(fault=fault, began=4.0, healed=6.0),),
        settled_after=None,
        faulty=(),
        traces={1: TRACE},
    )


def test_a_broken_promise_is_told_with_its_message_and_the_trace(outcome: Outcome) -> None:
    (text,) = broken(outcome, outcome.books.account())
    first, *rest = text.splitlines()
    assert "lost: gold message abc-1 on news.world" in first
    assert "for 1 readers (ann), while 1 had it" in first
    assert "nearest fault: kill oregon-retail-1-gateway at 4.0 s" in first
    assert [line.strip() for line in rest] == TRACE.splitlines()


def test_the_report_has_the_traces_and_why_readers_were_told_of_gaps(
    outcome: Outcome, tmp_path: Path
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


def test_a_message_is_overdue_when_its_receipt_is_old_and_somebody_lacks_it(
    outcome: Outcome,
) -> None:
    assert [m.n for m in outcome.books.overdue(at=65.2, after=60.0)] == [1]
    assert [m.n for m in outcome.books.overdue(at=65.0, after=60.0)] == []
