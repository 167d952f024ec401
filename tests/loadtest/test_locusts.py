"""Options of a load test, the number of readers at each time, the report; and a small real test."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from worlds import PORTS, ROOT, World, ports_in_use, require_rabbitmq

from loadtest.locusts import state
from loadtest.locusts.options import (
    ARGUMENTS,
    SHAPES,
    LocustOptions,
    OptionError,
    check_target,
    checked,
    is_loopback,
)
from loadtest.locusts.report import LocustSample, plot, summary, write_report
from loadtest.locusts.shapes import dense_at, messages_at, readers_at, storms
from loadtest.records import Census, census

BASE = PORTS + 1400
LOCUST = ROOT / ".tools" / "loadtest" / "bin" / "locust"


def options(**given: Any) -> LocustOptions:
    return checked({"tokens_file": "tokens", **given})


def sample(at: float, **other: Any) -> LocustSample:
    counts = dict.fromkeys(("connect", "receive", "resume", "publish", "doubled", "failures"), 0)
    times: dict[str, Any] = {"connect_ms": (2.0, 9.0), "delay_ms": (3.0, 12.0)}
    return LocustSample(at=at, readers=10, **counts | times | other)


# --- options ------------------------------------------------------------------------------------


def test_defaults_are_good_and_every_argument_is_an_option() -> None:
    found = options()
    assert {one.name for one in ARGUMENTS} == {f.name for f in dataclasses.fields(found)}
    assert found.publishers == 3
    assert found.mix["AnonymousReader"] == 6


def test_texts_from_a_web_page_are_as_good_as_numbers() -> None:
    found = options(readers="7", seconds="2.5", i_own_this_target="true", shape="diurnal")
    assert (found.readers, found.seconds, found.i_own_this_target) == (7, 2.5, True)


@pytest.mark.parametrize(
    "wrong",
    [
        {"shape": "square"},
        {"readers": 0},
        {"readers": -1},
        {"dense": 0.5},
        {"dense": 1, "frontdesks": "https://127.0.0.1:18100"},
        {"dense": 1, "frontdesks": "http://[::1]:18100"},
        {"dense": 1, "amqp_publishers": 200, "http_publishers": 57},
        {"readers": "many"},
        {"readers": 2.5},
        {"seconds": "nan"},
        {"messages": float("inf")},
        {"settle": 1},
        {"topics": " , "},
        {"mix": "Lurker=1"},
        {"mix": "AnonymousReader=1,AnonymousReader=2"},
        {"mix": "AnonymousReader=0"},
        {"amqp_publishers": 0, "http_publishers": 0},
        {"frontdesks": "127.0.0.1:18100"},
        {"frontdesks": "http://[::1"},
        {"frontdesks": "http://127.0.0.1:99999"},
        {"amqp": "http://127.0.0.1"},
        {"tokens_file": ""},
    ],
)
def test_a_wrong_option_is_refused_in_one_line(wrong: dict[str, Any]) -> None:
    with pytest.raises(OptionError) as refused:
        options(**wrong)
    assert "\n" not in str(refused.value)


def test_no_tokens_are_needed_without_registered_readers() -> None:
    assert checked({"mix": "SlowReader=1"}).mix == {"SlowReader": 1}
    assert checked({"readers": 0, "dense": 1}).readers == 0


def test_dense_readers_are_shared_out_among_as_few_processes_as_can_be() -> None:
    found = {n: options(dense=n) for n in (0, 1, 16_000, 16_001, 100_000)}
    shares = {n: (given.dense_users, given.dense_each) for n, given in found.items()}
    assert shares == {
        0: (0, 0),
        1: (1, 1),
        16_000: (1, 16_000),
        16_001: (2, 8001),
        100_000: (7, 14_286),
    }


@pytest.mark.parametrize(
    "target",
    [
        {"frontdesks": "http://127.0.0.1:1,https://news.example.org"},
        {"frontdesks": "http://10.0.0.1"},
        {"frontdesks": "http://localhost.example.org"},
        {"amqp": "amqp://broker.example.org"},
    ],
)
def test_what_is_not_loopback_needs_to_be_ones_own(target: dict[str, str]) -> None:
    with pytest.raises(OptionError, match="--i-own-this-target"):
        options(**target)
    assert options(**target, i_own_this_target=True)


def test_a_loopback_frontdesk_may_not_lead_elsewhere() -> None:
    check_target("ws://[::1]:1/websocket", ("ws", "wss"), own=False)
    with pytest.raises(OptionError, match="--i-own-this-target"):
        check_target("wss://box.example.org/websocket", ("ws", "wss"), own=False)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_loopback_is_this_machine(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["", "0.0.0.0", "2130706433", "::ffff:10.0.0.1", "localhost."])
def test_what_only_looks_like_loopback_is_not(host: str) -> None:
    assert not is_loopback(host)


def test_a_password_may_not_be_in_a_url_and_is_not_shown() -> None:
    with pytest.raises(OptionError, match="--amqp-password-file") as refused:
        options(amqp="amqp://me:hunter2@127.0.0.1")
    assert "hunter2" not in str(refused.value)


# --- shapes -------------------------------------------------------------------------------------


@given(
    shape=st.sampled_from(SHAPES),
    readers=st.integers(1, 100_000),
    seconds=st.floats(1, 100_000),
    part=st.floats(0, 1, exclude_max=True),
)
def test_there_are_never_more_readers_than_asked_for_nor_none(
    shape: str, readers: int, seconds: float, part: float
) -> None:
    given = options(shape=shape, readers=readers, seconds=seconds)
    found = readers_at(given, part * seconds, 0.0)
    assert found is not None
    assert 1 <= found <= readers
    assert messages_at(given, part * seconds * 0.999) > 0


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_settles_and_then_ends(shape: str) -> None:
    given = options(shape=shape, readers=100, seconds=60, settle=10)
    assert messages_at(given, 60.0) == 0
    assert readers_at(given, 60.0, 0.0) == readers_at(given, 69.9, 60.0)
    assert readers_at(given, 70.0, 5.0) is None


def test_a_test_ends_when_nothing_has_arrived_for_five_seconds_or_two_minutes_later() -> None:
    given = options(shape="steady", readers=100, seconds=120, settle=10)
    # The last message arrives at second 140.
    at = ((130, 0.0), (140, 0.0), (144, 4.0), (145, 5.0))
    assert [readers_at(given, t, quiet) for t, quiet in at] == [100, 100, 100, None]
    # Messages never end.
    assert readers_at(given, 249.9, 0.0) == 100
    assert readers_at(given, 250.0, 0.0) is None


def test_breaking_news_brings_all_readers_and_more_messages() -> None:
    given = options(shape="breaking_news", readers=100, seconds=100, messages=2)
    at = (29, 35, 41, 79, 95)
    assert [readers_at(given, t, 0.0) for t in at] == [20, 60, 100, 100, 50]
    assert [messages_at(given, t) for t in at] == [2, 8, 8, 8, 8]


def test_dense_readers_come_and_go_as_the_others_do() -> None:
    given = options(shape="breaking_news", readers=0, dense=100, seconds=100)
    at = (29, 35, 41, 79, 95, 150)
    assert [dense_at(given, t) for t in at] == [20, 60, 100, 100, 50, 50]
    assert {readers_at(given, t, 0.0) for t in at} == {0}


def test_a_day_begins_and_ends_at_night() -> None:
    given = options(shape="diurnal", readers=100, seconds=100)
    assert [readers_at(given, t, 0.0) for t in (0, 50, 99.99)] == [20, 100, 20]


def test_only_a_reconnect_storm_cuts_connections() -> None:
    found = {shape: storms(options(shape=shape, seconds=90)) for shape in SHAPES}
    assert found.pop("reconnect_storm") == (30.0, 60.0)
    assert set(found.values()) == {()}


# --- figures of a process ----------------------------------------------------------------------


def test_a_token_says_whose_it_is(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("e30.eyJzdWIiOiJhbm5hIn0.c2ln\n")
    run = state.Run(options(tokens_file=str(tokens), amqp_publishers=1, http_publishers=1))
    assert run.users == ["anna"]


@pytest.mark.parametrize("text", ["", "no-token", "a.b.c", "e30.e30.c2ln"])
def test_what_is_no_token_is_refused_and_not_shown(tmp_path: Path, text: str) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text(text)
    with pytest.raises(OptionError) as refused:
        state.Run(options(tokens_file=str(tokens)))
    assert not text or text not in str(refused.value)


# --- the report ---------------------------------------------------------------------------------


def test_the_report_says_what_was_not_kept_and_escapes_its_input(tmp_path: Path) -> None:
    found = census([], [])
    rows = [("receive", "<b>", 3, 1, 1.0, 2.0, 3.0)]
    given = options(tokens_file="/a/secret/place")
    write_report(tmp_path, given, [sample(1), sample(2)], found, ["2 <i> were lost"], rows)
    page = (tmp_path / "report.html").read_text()
    assert "2 &lt;i&gt; were lost" in page
    assert "<b>" not in page
    document = json.loads((tmp_path / "report.json").read_text())
    assert document["broken_promises"] == ["2 <i> were lost"]
    assert len(document["samples"]) == 2
    assert "/a/secret/place" not in page + json.dumps(document)


def test_a_run_that_ended_at_once_has_a_report_too(tmp_path: Path) -> None:
    write_report(tmp_path, options(), [], census([], []), [], [])
    assert "too soon for a plot" in (tmp_path / "report.html").read_text()


def test_the_plot_is_a_picture() -> None:
    picture = plot([sample(1), sample(2, doubled=3)], "a <title>")
    assert ElementTree.fromstring(picture).tag.endswith("svg")
    assert "0:02" in picture


def test_the_summary_names_each_broken_promise() -> None:
    found = census([], [])
    assert isinstance(found, Census)
    assert summary(found, ["one", "two"]).endswith(": one; two")
    assert summary(found, []).endswith("every promise was kept")


# --- really -------------------------------------------------------------------------------------


def run(*words: str | Path, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "loadtest.locusts", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, cwd=ROOT)


def test_the_command_refuses_a_strangers_address_before_anything_is_started(tmp_path: Path) -> None:
    done = run("--frontdesks", "https://news.example.org", "--mix", "AnonymousReader=1")
    assert done.returncode == 2
    assert done.stderr == (
        "error: news.example.org is not loopback: a load test there needs --i-own-this-target; "
        "say it only if you do\n"
    )


def require_locust() -> None:
    """Skip on a laptop without locust; fail in CI."""
    if not LOCUST.exists():
        if os.environ.get("CI"):
            pytest.fail("CI must have locust: scripts/setup loadtest")
        pytest.skip("locust is missing: scripts/setup loadtest")


def test_locust_itself_refuses_it_too() -> None:
    require_locust()
    done = subprocess.run(
        [
            LOCUST,
            "--locustfile=loadtest/locusts/locustfile.py",
            "--headless",
            "--mix=AnonymousReader=1",
            "--frontdesks=http://news.example.org",
        ],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=ROOT,
    )
    assert done.returncode == 2
    assert "needs --i-own-this-target" in done.stderr


def words(tmp_path: Path, **more: Any) -> list[str]:
    given = {
        "port-base": BASE,
        "report": tmp_path / "report",
        "readers": 50,
        "roam-every": 4,
        "slow-pause": 3,
        **more,
    }
    return [f"--{name}={value}" for name, value in given.items()]


def started(*arguments: str) -> subprocess.Popen[str]:
    """Return a running load test whose readers are connected and get messages."""
    process = subprocess.Popen(
        [sys.executable, "-m", "loadtest.locusts", *arguments],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        start_new_session=True,
    )
    assert process.stdout is not None
    # The first line of figures.
    assert any("received/s" in line for line in iter(process.stdout.readline, ""))
    return process


def check_interrupted(process: subprocess.Popen[str], report: Path) -> None:
    """Check that an interrupted load test ends with a report."""
    rest, _ = process.communicate(timeout=300)
    assert "0 lost, 0 doubled" in rest
    assert json.loads((report / "report.json").read_text())["census"]["lost"] == 0
    assert "<svg" in (report / "report.html").read_text()


@pytest.mark.slow
@pytest.mark.cargo
@pytest.mark.timeout(900)
def test_a_small_load_test_loses_and_doubles_nothing(world: World, tmp_path: Path) -> None:
    require_locust()
    if shutil.which("cargo") is None:
        pytest.skip("cargo is missing")
    shape = {"shape": "reconnect_storm", "seconds": 20, "settle": 20, "workers": 2, "dense": 300}
    done = run("--running", *words(tmp_path, **shape, state=world.state), timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "report" / "report.json").read_text())
    assert (found["census"]["lost"], found["census"]["doubled"]) == (0, 0)
    assert found["census"]["readers"] == 350
    assert found["census"]["owed"] > 500
    # Each kind has received something, and all readers came again after each of two storms.
    counts = {(row["event"], row["who"]): row["count"] for row in found["events"]}
    kinds = {*found["options"]["mix"], "DenseReaders"}
    assert {who for event, who in counts if event == "receive"} == kinds
    dense = counts["connect", "DenseReaders"]
    assert dense >= 900
    assert sum(n for (event, _), n in counts.items() if event == "connect") - dense >= 150
    assert counts["receive", "DenseReaders"] > 3000
    assert max(sample["readers"] for sample in found["samples"]) > 330
    assert {who for event, who in counts if event == "publish"} == {"AMQP", "HTTP"}
    assert "<svg" in (tmp_path / "report" / "report.html").read_text()
    assert "Locust" in (tmp_path / "report" / "locust.html").read_text()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_worker_that_dies_makes_the_run_fail(world: World, tmp_path: Path) -> None:
    require_locust()
    # Long enough for locust to report the worker missing, which it does after 15 s.
    shape = {"shape": "steady", "seconds": 30, "settle": 10, "workers": 2}
    process = started("--running", *words(tmp_path, **shape, state=world.state))
    children = psutil.Process(process.pid).children(recursive=True)
    next(child for child in children if "--worker" in child.cmdline()).kill()
    rest, _ = process.communicate(timeout=300)
    assert "not kept: 1 workers sent no records" in rest
    assert process.returncode == 1


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_who_is_interrupted_still_writes_the_report(world: World, tmp_path: Path) -> None:
    require_locust()
    shape = {"shape": "steady", "seconds": 60, "state": world.state}
    process = started("--running", *words(tmp_path, **shape))
    process.send_signal(signal.SIGTERM)
    check_interrupted(process, tmp_path / "report")


@pytest.mark.slow
@pytest.mark.world
@pytest.mark.timeout(600)
def test_with_a_world_of_its_own_nothing_is_left_when_it_is_interrupted(tmp_path: Path) -> None:
    require_rabbitmq()
    require_locust()
    shape = {"shape": "steady", "seconds": 60, "regions": "oregon", "state": tmp_path / "world"}
    process = started(*words(tmp_path, **shape))
    process.send_signal(signal.SIGINT)
    check_interrupted(process, tmp_path / "report")
    assert ports_in_use(BASE, 246) == []
    assert not (tmp_path / "world").exists()
