"""The way of a message from an AMQP publisher to readers of both regions, over every transport."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from urllib.request import Request, urlopen

import pytest
from tailing import Tail
from worlds import ROOT, World

pytestmark = [pytest.mark.world, pytest.mark.timeout(420)]

TRANSPORTS = ("websocket", "sockjs", "xhr-streaming", "sse")


def _headline() -> str:
    return f"A headline {uuid.uuid4()}"


def test_a_headline_published_in_oregon_reaches_a_reader_in_dublin_once(world: World) -> None:
    headline = _headline()
    tail = Tail(world, "news.world", region="dublin")
    published = world.run(
        "publish", "news.world", json.dumps({"headline": headline}), "--region", "oregon"
    )
    assert published.returncode == 0, published.stderr
    (message,) = tail.messages()
    assert message["body"] == {"headline": headline}
    assert message["topic"] == "news.world"
    # A silver message has one copy, so its id is the receipt's.
    assert message["id"] == published.stdout.strip()
    assert message["origin"] == "oregon"


def test_a_tail_prints_what_is_published_while_it_connects(world: World) -> None:
    headline = _headline()
    tail = world.start(
        *("tail", "news.breaking", "--region", "dublin", "--count", "1"),
        "--timeout",
        "20",
        "--json",
    )
    published = world.run("publish", "news.breaking", json.dumps({"headline": headline}))
    assert published.returncode == 0, published.stderr
    printed, output = tail.communicate(timeout=30)
    assert [json.loads(line)["body"]["headline"] for line in printed.splitlines()] == [headline], (
        output
    )


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_it_arrives_in_both_regions_over_every_transport(world: World, transport: str) -> None:
    headline = _headline()
    tails = [
        Tail(world, "news.culture", region=region, options=("--transport", transport))
        for region in ("oregon", "dublin")
    ]
    world.run("publish", "news.culture", json.dumps({"headline": headline}), "--region", "dublin")
    assert [tail.messages()[0]["body"] for tail in tails] == [{"headline": headline}] * 2


def test_a_stranger_with_pika_needs_to_know_the_exchange_alone(world: World) -> None:
    headline = _headline()
    tails = [Tail(world, "news.breaking", region=region) for region in ("oregon", "dublin")]
    script = subprocess.run(
        [
            *(sys.executable, str(ROOT / "examples" / "publish.py")),
            *(world.amqp_url("oregon"), "news.breaking", json.dumps({"headline": headline})),
        ],
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert script.returncode == 0, script.stderr
    assert [tail.messages()[0]["body"] for tail in tails] == [{"headline": headline}] * 2


@pytest.mark.promise("D1")
def test_gold_copies_from_two_regions_reach_a_reader_once(world: World) -> None:
    # Gold enters both regions' routers, so each box gets two copies: if the hub let it through, a
    # second copy of the first headline would precede the second one.
    first, second = _headline(), _headline()
    tail = Tail(world, "news.breaking", region="oregon", count=2)
    for headline in (first, second):
        world.run("publish", "news.breaking", json.dumps({"headline": headline}))
    assert [m["body"]["headline"] for m in tail.messages()] == [first, second]


@pytest.mark.promise("S1", "S2")
def test_a_repeated_message_id_is_delivered_once(world: World) -> None:
    message_id = str(uuid.uuid4())
    tail = Tail(world, "news.world", region="oregon", count=2)
    ids = [
        world.run(
            "publish", "news.world", json.dumps({"headline": text}), "--message-id", message_id
        ).stdout.strip()
        for text in ("again", "again", "changed")
    ]
    world.run("publish", "news.world", '{"headline": "another"}')
    bodies = [m["body"]["headline"] for m in tail.messages()]
    assert bodies == ["again", "another"]
    # All ids are of one message: they are equal after the router's time.
    assert ids[0][14:] == ids[1][14:] == ids[2][14:]


def test_publishing_over_http_answers_with_the_id_that_readers_see(world: World) -> None:
    headline = _headline()
    tail = Tail(world, "news.world", region="oregon")
    request = Request(
        world.region("dublin")["frontdesk_url"] + "/publish",
        json.dumps({"topic": "news.world", "body": {"headline": headline}}).encode(),
        {"Content-Type": "application/json"},
    )
    with urlopen(request, timeout=10) as response:
        answer = json.load(response)
    (message,) = tail.messages()
    assert message["body"] == {"headline": headline}
    assert message["id"] == answer["id"]


def test_what_oregon_published_is_in_dublins_history(world: World) -> None:
    headline = _headline()
    world.run("publish", "news.politics", json.dumps({"headline": headline}), "--region", "oregon")
    url = world.region("dublin")["frontdesk_url"] + "/history?topic=news.politics&limit=1"
    with urlopen(url, timeout=10) as response:
        (message,) = json.load(response)["messages"]
    assert message["body"] == {"headline": headline}


def test_a_replayed_day_arrives_whole(world: World, tmp_path) -> None:
    day = tmp_path / "day.jsonl"
    lines = [
        {"at": n / 10, "topic": "news.day", "message_id": f"m{n}", "body": {"headline": str(n)}}
        for n in range(50)
    ]
    day.write_text("".join(json.dumps(line) + "\n" for line in lines))
    tail = Tail(world, "news.day", region="dublin", count=50)
    replay = world.run("replay", str(day), "--speed", "0", "--region", "oregon")
    assert replay.returncode == 0, replay.stderr
    assert {m["body"]["headline"] for m in tail.messages()} == {str(n) for n in range(50)}
