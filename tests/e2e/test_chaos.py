"""A world is broken on purpose: single parts by hand, then for ninety seconds by schedule."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tailing import Tail
from worlds import ROOT, World, gateways_in

from localfabric.world.toxiproxy import find_toxiproxy

# The ninety seconds need a world with two boxes in each region: all other tests use it, too.
pytestmark = [pytest.mark.slow, pytest.mark.world, pytest.mark.timeout(600)]


@pytest.fixture(autouse=True)
def mended(boxes: World) -> Iterator[None]:
    yield
    boxes.mend()


@pytest.fixture
def linked(boxes: World) -> World:
    """Return such a world with regions linked through Toxiproxy; skip on a laptop without it."""
    if find_toxiproxy(ROOT, os.environ) is None:
        if os.environ.get("CI") and shutil.which("go"):
            pytest.fail("CI must have Toxiproxy: `make setup` installs it where Go is")
        pytest.skip("Toxiproxy is not installed")
    return boxes


def _eventually(check: Callable[[], bool], what: str, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.2)


def _chaos(world: World, *arguments: str) -> list[tuple[str, str]]:
    done = world.run("chaos", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return [(each["name"], each["done"]) for each in json.loads(done.stdout)]


def _pid(world: World, name: str) -> int | None:
    services = world.region("oregon")["services"]
    found: int | None = next(s["pid"] for s in services if s["name"] == name)
    return found


def test_what_is_killed_stays_dead_until_it_is_healed(boxes: World) -> None:
    frontdesk = "oregon-frontdesk-1"
    before = _pid(boxes, frontdesk)
    assert _chaos(boxes, "kill", frontdesk) == [(frontdesk, "killed")]
    assert _pid(boxes, frontdesk) is None
    assert _chaos(boxes, "heal") == [(frontdesk, "started")]
    assert _pid(boxes, frontdesk) not in (None, before)
    _eventually(
        lambda: len(gateways_in(boxes.region("oregon")["endpoints_url"])) == 2,
        "the new frontdesk knows both boxes",
    )


def test_a_wrong_name_breaks_nothing_and_is_answered_with_the_right_one(boxes: World) -> None:
    done = boxes.run("chaos", "kill", "oregon-router-1", "oregon-ruoter-2")
    assert done.returncode == 1
    assert "did you mean oregon-router-2?" in done.stderr
    assert _pid(boxes, "oregon-router-1") is not None


def test_a_region_that_is_cut_off_goes_on_and_misses_nothing(linked: World) -> None:
    tail = Tail(linked, "news.world", region="dublin", count=2)
    assert _chaos(linked, "cut", "dublin") == [("oregon-dublin-link", "cut")]
    published = linked.run("publish", "news.world", '"far"', "--region", "oregon")
    assert published.returncode == 0, published.stderr
    published = linked.run("publish", "news.world", '"near"', "--region", "dublin")
    assert published.returncode == 0, published.stderr
    assert _chaos(linked, "heal") == [("oregon-dublin-link", "healed")]
    # The order is open: the regions share the one SQLite file, which can't be cut. From it dublin's
    # gateway reads the messages of a silent region. A complete cut is tested with Cassandra
    # (test_the_store_in_cassandra.py).
    assert {message["body"] for message in tail.messages()} == {"near", "far"}


def test_a_replay_goes_by_the_other_region_while_a_broker_is_away(
    linked: World, tmp_path: Path
) -> None:
    day = tmp_path / "day.jsonl"
    day.write_text(
        "".join(f'{{"at": {n}, "topic": "news.world", "body": {n}}}\n' for n in range(50))
    )
    assert _chaos(linked, "kill", "oregon-client-1") == [("oregon-client-1", "killed")]
    try:
        done = linked.run("replay", str(day), "--speed", "0", "--region", "oregon")
        assert (done.returncode, done.stdout) == (0, "50 routed, 0 rejected\n"), done.stderr
        # A single message takes the other region, too, and the output says so.
        by_dublin = linked.run("publish", "news.world", "1", "--region", "oregon")
        assert by_dublin.returncode == 0, by_dublin.stderr
        assert by_dublin.stderr.startswith("oregon's entrance is away (")
        assert "): published by dublin\n" in by_dublin.stderr
        # With that region's broker dead, too, the output names the fault and the remedy.
        assert _chaos(linked, "kill", "dublin-client-1") == [("dublin-client-1", "killed")]
        alone = linked.run("publish", "news.world", "1", "--region", "oregon", "--timeout", "1")
        assert alone.returncode == 1
        assert "nothing was sent: no broker took it within 1 s" in alone.stderr
        assert "are dead or stopped: `newsfabric chaos heal" in alone.stderr
        assert {"oregon-client-1", "dublin-client-1"} <= set(re.findall(r"[\w-]+", alone.stderr))
    finally:
        _chaos(linked, "heal")


def test_queues_that_are_lost_with_what_is_in_them_come_back_and_news_goes_on(
    boxes: World,
) -> None:
    lost = [
        ("oregon-core-1/router.1", "lost"),
        ("oregon-core-1/box.oregon-retail-1.1", "lost"),
        ("oregon-retail-1/gateway", "lost"),
        ("oregon-client-1/shovel.publish.oregon.1", "lost"),
    ]
    assert _chaos(boxes, "lose", *(name for name, _ in lost)) == lost
    tail = Tail(boxes, "news.world", region="oregon", count=1)
    published = boxes.run("publish", "news.world", '"again"', "--region", "oregon")
    assert published.returncode == 0, published.stderr
    assert [message["body"] for message in tail.messages()] == ["again"]
    _eventually(
        lambda: len(gateways_in(boxes.region("oregon")["endpoints_url"])) == 2,
        "both boxes have their feed",
    )


def test_a_wrong_queue_is_answered_with_the_right_one(boxes: World) -> None:
    done = boxes.run("chaos", "lose", "oregon-core-1/ruoter.1")
    assert done.returncode == 1
    assert "did you mean oregon-core-1/router.1?" in done.stderr


def test_in_ninety_seconds_of_chaos_nothing_is_lost_and_nothing_doubled(
    boxes: World, tmp_path: Path
) -> None:
    run = boxes.run(
        *("chaos", "run", "--minutes", "1.5", "--seed", "1", "--rate", "20", "--readers", "60"),
        *("--report", str(tmp_path)),
        timeout=400,
    )
    assert run.returncode == 0, f"{run.stdout}\n{run.stderr}"
    report = json.loads((tmp_path / "report.json").read_text())
    account = report["account"]
    assert (report["kept"], account["wrong"]) == (True, [])
    assert account["receipted"] == account["published"] == 1800
    assert account["paid"] == account["owed"] - account["missing_bronze"]
    assert account["connections"] > 2 * account["readers"]
    broken = {fault["kind"] for fault in report["faults"]}
    assert {"core node", "gateway", "router", "dataplane", "mailbox", "router queue"} <= broken
    assert account["recovered"] > account["readers"]
    assert account["dismissed"] > 20
    assert account["unheard"] == 0
    assert all(fault["error"] is None for fault in report["faults"])
    assert (tmp_path / "plot.svg").read_text().startswith("<svg ")
    assert "Every promise was kept" in (tmp_path / "report.md").read_text()
