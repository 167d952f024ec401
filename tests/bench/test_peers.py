"""The comparison with peers: the messages published, the comparison of rounds, the report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from bench.peers import __main__ as command
from bench.peers import catalogue, play
from bench.peers.catalogue import OURS, PEERS, Peer
from bench.peers.play import FLOOR, Plan, Run, Under, order, ratios
from bench.peers.report import Compared, ahead, rows, write
from bench.peers.servers import payload


def run(cpu_us: float, *, handshakes: float = 1_000.0, missing: int = 0) -> Run:
    return Run(cpu_us=cpu_us, handshakes=handshakes, p50_ms=2.0, missing=missing)


@pytest.mark.parametrize("size", [100, 200, 16_384])
@pytest.mark.parametrize("due_ns", [1, 10**15, 10**18])
def test_a_payload_is_as_long_as_asked_and_says_when_it_was_due(size: int, due_ns: int) -> None:
    text = payload(due_ns, size)
    assert len(text) == size
    assert text.startswith(f'{{"sent_ns":{due_ns},')
    assert json.loads(text)["sent_ns"] == due_ns
    assert text.isascii()


def test_every_other_round_is_played_in_the_opposite_order() -> None:
    found = ["".join(order("abc", number)) for number in range(3)]
    assert found == ["abc", "cba", "abc"]


def test_a_ratio_is_to_the_floor_of_the_same_round() -> None:
    # In the second round the processor was half as fast, for both.
    found = {FLOOR: [run(4.0), run(8.0), run(4.0)], "ws": [run(8.0), run(18.0), run(10.0)]}
    assert ratios(found, "ws") == (2.25, 2.0, 2.5)


async def test_without_the_floor_there_is_no_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(plan: Plan) -> Run:
        raise TimeoutError("the floor doesn't listen")

    monkeypatch.setattr(play, "play_floor", fails)
    with pytest.raises(TimeoutError, match="the floor doesn't listen"):
        await play.rounds([], Plan(), 1, lambda line: None)


async def test_who_does_not_compress_is_left_out_where_all_must(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    played: list[str] = []

    async def plays(peer: Peer, plan: Plan) -> Run:
        played.append(peer.name)
        return run(5.0)

    async def floor(plan: Plan) -> Run:
        return run(5.0)

    monkeypatch.setattr(play, "play", plays)
    monkeypatch.setattr(play, "play_floor", floor)
    plan = Plan(under=Under.DEFLATE)
    found, failed = await play.rounds(PEERS, plan, 1, lambda line: None)
    assert played == ["newsfabric", "nchan", "ws", "socket.io", "tornado"]
    assert [*found] == [FLOOR, *played]
    assert failed["picows"] == "it doesn't compress"


@pytest.mark.parametrize(
    ("under", "readers", "reading"),
    [
        (Under.NOTHING, 250, 250),
        # Readers 0, 100 and 200 stall.
        (Under.STALLED, 250, 247),
        (Under.STORM, 251, 26),
    ],
)
def test_who_stalls_or_reconnects_is_not_measured(under: Under, readers: int, reading: int) -> None:
    assert Plan(readers=readers, under=under).reading == reading


def test_in_a_storm_there_is_no_floor_to_compare_with() -> None:
    found = {OURS: [run(300.0)], "ws": [run(900.0)]}
    storm = Compared(Plan(under=Under.STORM), found, {})
    assert storm.plan.title.endswith("90 % of the readers reconnect at once")
    assert [row[:4] for row in rows(storm)] == [(OURS, "300.00", "", ""), ("ws", "900.00", "", "")]


def compared() -> Compared:
    ours = [run(5.0, handshakes=30_000), run(5.2, handshakes=31_000), run(5.1, handshakes=32_000)]
    ws = [run(9.0, handshakes=40_000), run(9.0, handshakes=41_000, missing=3), run(9.3)]
    found = {FLOOR: [run(5.0), run(5.0), run(5.0)], OURS: ours, "ws": ws}
    return Compared(Plan(topics=10), found, {"nchan": "it isn't there"})


def test_a_peer_is_ahead_in_what_its_median_is_better_at() -> None:
    assert ahead(compared()) == ["ws: handshakes 4e+04, ours 3.1e+04"]


def test_a_row_has_medians_and_all_that_is_missing() -> None:
    ws = next(row for row in rows(compared()) if row[0] == "ws")
    assert ws[:4] == ("ws", "9.00", "1.80", "1.80 – 1.86")
    assert (ws[6], ws[7], ws[-1]) == ("40,000", "2.0", "3")


@pytest.mark.sockets
def test_a_report_names_who_was_left_out_and_why(tmp_path: Path) -> None:
    write(tmp_path, [compared()], "python -m bench.peers", 3)
    text = (tmp_path / "report.md").read_text()
    assert "## 5,000 readers, 10 topics, 200 bytes" in text
    assert "- not run: nchan: it isn't there" in text
    assert "- ahead of us: ws: handshakes" in text
    runs = json.loads((tmp_path / "report.json").read_text())["results"][0]["runs"]
    assert [one["cpu_us"] for one in runs["ws"]] == [9.0, 9.0, 9.3]
    assert (tmp_path / "plot-1.svg").read_text().startswith("<svg")


@pytest.mark.parametrize(
    "case", ["0:200", "1:99", "1:65537", "1", "200:x", "1:200:3", "1:200:", "1:200:storms"]
)
def test_a_case_that_cannot_be_is_refused(case: str) -> None:
    done = CliRunner().invoke(command.main, ["--case", case])
    assert done.exit_code == 2
    assert "isn't TOPICS:BYTES, as 10:200" in done.output
    assert "one of deflate, stalled, storm" in done.output


def test_a_peer_that_is_not_installed_says_what_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(catalogue, "_MERCURE", tmp_path / "mercure")
    missing = {peer.name: peer.missing() for peer in PEERS}
    assert missing[OURS] is None
    assert missing["ws"] == "node isn't on the PATH"
    assert missing["mercure"] == "Mercure isn't there: `scripts/setup peers` installs it"
    assert missing["nchan"] is not None
    assert "`scripts/setup peers` installs it" in missing["nchan"]
