"""Two worlds and the mirror between them: an ordinary hour, then the other one breaks."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from tailing import Tail
from worlds import PORTS, ROOT, World, ports_in_use, require_rabbitmq

pytestmark = [pytest.mark.slow, pytest.mark.world, pytest.mark.timeout(900)]

BASES = {"original": PORTS + 1000, "other": PORTS + 1200}
METRICS_PORT = PORTS + 1692
START = 300
TOPICS = ("news.breaking", "markets.indices", "sport.football")


@contextlib.contextmanager
def _running(state: Path, base: int) -> Iterator[World]:
    world = World(state)
    where = ("--regions", "oregon", "--port-base", str(base), "--timeout", str(START))
    up = world.run("up", "--detach", *where, timeout=START + 60)
    try:
        assert up.returncode == 0, f"{up.stdout}\n{up.stderr}"
        yield world
    finally:
        down = world.run("down")
    assert down.returncode == 0, f"{down.stdout}\n{down.stderr}"
    assert world.pids() == set()
    assert ports_in_use(base, 200) == []


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, World]]:
    require_rabbitmq()
    folder = tmp_path_factory.mktemp("mirror")
    with contextlib.ExitStack() as stack:
        yield {
            name: stack.enter_context(_running(folder / name, base)) for name, base in BASES.items()
        }


class Mirror:
    """``newsfabric mirror`` between the worlds; in its block the first line was printed."""

    def __init__(self, worlds: dict[str, World], *options: str) -> None:
        words = [
            *("--from", str(worlds["original"].state), "--to", str(worlds["other"].state)),
            *("--share", "1", "--every", "0.5", "--json", *options),
        ]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "operations.cli", "mirror", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        self.lines: list[str] = []
        self._more = threading.Condition()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def __enter__(self) -> Mirror:
        try:
            self.wait_for("heard ")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Kill the process and close its pipes, whatever happened."""
        self.process.kill()
        self._listener.join()
        self.process.communicate()

    def _listen(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._more:
                self.lines.append(line)
                self._more.notify_all()

    def wait_for(self, text: str, seconds: float = 120) -> None:
        """Return when a line since the last call has the words ``text``."""
        with self._more:
            found = self._more.wait_for(lambda: any(text in line for line in self.lines), seconds)
            assert found, f"{text!r} was never printed: {self.lines[-3:]}"
            self.lines.clear()

    def end(self, code: int) -> dict[str, Any]:
        """Press Ctrl-C; return the document once the process has ended with ``code``."""
        self.process.terminate()
        text, _ = self.process.communicate(timeout=120)
        assert self.process.returncode == code, self.lines[-3:]
        found: dict[str, Any] = json.loads(text)
        return found


def _day(world: World, speed: int) -> None:
    """Publish the recorded day of a news desk."""
    done = world.run("replay", "examples/newsday.jsonl", "--speed", str(speed), timeout=300)
    assert done.returncode == 0, done.stderr


def _until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def _page(path: str) -> str:
    with urlopen(f"http://127.0.0.1:{METRICS_PORT}{path}", timeout=10) as answer:
        return str(answer.read().decode())


def test_a_day_of_news_and_its_readers_are_seen_in_both_worlds(worlds: dict[str, World]) -> None:
    original = worlds["original"]
    tails = [Tail(original, topic, region="oregon", count=20) for topic in TOPICS]
    limits = ("--fail-on-loss", "--fail-over-delay", "10000")
    with Mirror(worlds, *limits, "--admin-port", str(METRICS_PORT)) as mirror:
        _day(original, 4000)
        mirror.wait_for("readers 3 of 3")
        _until(lambda: "newsfabric_mirror_heard_messages_total 662.0\n" in _page("/metrics"))
        assert json.loads(_page("/healthz/ready"))["ready"]
        document = mirror.end(0)
        for tail in tails:
            assert len(tail.messages()) == 20
    assert document["messages"]["heard"] == 662
    assert document["messages"]["outcomes"] == {"taken": 662}
    assert document["readers"]["opened"] >= 3
    assert document["readers"]["messages"] > 0
    for name in ("gold", "silver", "bronze"):
        for side in ("here", "there"):
            found = document["classes"][name][side]
            assert found["delivered"] == found["watched"] > 20
            assert (found["missing"], found["doubled"]) == (0, 0)


def test_the_other_may_break_and_the_original_feels_nothing(worlds: dict[str, World]) -> None:
    original, other = worlds["original"], worlds["other"]
    tail = Tail(original, "news.breaking", region="oregon", count=41)
    with Mirror(worlds, "--readers", "20", "--patience", "5", "--log-format", "json") as mirror:
        publishing = threading.Thread(target=_day, args=(original, 2500))
        publishing.start()
        mirror.wait_for("readers 20 of 20")
        killed = other.run("chaos", "kill", "oregon-client-1", "oregon-retail-1-dataplane")
        assert killed.returncode == 0, killed.stderr
        mirror.wait_for("the other's client cluster: ")
        mirror.wait_for("readers 20 of 20")
        publishing.join()
        # All messages of the day, once each.
        assert len({message["id"] for message in tail.messages()}) == 41
        mirror.wait_for("dropped ")
        other.mend()
        document = mirror.end(0)
        assert {json.loads(line)["process"] for line in mirror.lines} <= {"mirror"}
    assert document["messages"]["outcomes"]["dropped"] > 0
    assert document["observers"]["there"]["cut_off"] >= 1
    assert document["readers"]["cut_off"] >= 20
    assert document["observers"]["here"]["cut_off"] == 0
    for name in ("gold", "silver", "bronze"):
        here = document["classes"][name]["here"]
        assert (here["delivered"], here["missing"], here["doubled"]) == (here["watched"], 0, 0)
