"""The bindings that keepers make for boxes on their core, and those that they remove there."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from fabrics import broker

from newsfabric.brokers.management import QueueState
from newsfabric.settings import Credentials, Node
from newsfabric.topology import Binding, Exchange, box_feed, box_of, box_queue, feed_bindings
from shovels.boxes import Boxes, box_actions

FEED = box_queue("edge-1", 1)
AS_MADE = dict(box_feed("edge-1", 1, "amqp://core/%2F").queue.bounds.arguments())
NOTHING: frozenset[Any] = frozenset()


def queue(name: str = FEED, *, exclusive: bool = False, **arguments: Any) -> dict[str, QueueState]:
    made = AS_MADE | {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
    return {name: QueueState(name, made, exclusive)}


def test_what_feeds_a_box_is_bound_to_all_that_is_for_it() -> None:
    made, gone = box_actions("oregon", queue(), NOTHING, NOTHING)
    assert made == {
        Binding("postoffice", FEED, "#"),
        Binding("orders", FEED, "_fabric.drain.oregon.edge-1"),
        Binding("upstream", FEED, "_fabric.load.oregon.edge-1"),
    }
    assert gone == NOTHING
    assert box_actions("oregon", queue(), made, NOTHING) == (NOTHING, NOTHING)


def test_agents_of_other_releases_may_say_other_bounds() -> None:
    wanted = frozenset(feed_bindings("oregon", "edge-1", FEED))
    for found in (queue(max_length=7, message_ttl=1), {FEED: QueueState(FEED, {})}):
        assert box_actions("oregon", found, NOTHING, NOTHING)[0] == wanted


@pytest.mark.parametrize(
    "found",
    [
        queue(overflow="reject-publish", max_length=0),
        queue(overflow="reject-publish-dlx"),
        queue(dead_letter_exchange="upstream"),
        queue(dead_letter_routing_key="x"),
        queue(queue_type="quorum"),
        queue(single_active_consumer=True),
        queue(exclusive=True),
    ],
)
def test_a_queue_that_refuses_or_sends_on_gets_nothing(found: dict[str, QueueState]) -> None:
    bound = frozenset(feed_bindings("oregon", "edge-1", FEED))
    assert box_actions("oregon", found, NOTHING, NOTHING) == (NOTHING, NOTHING)
    assert box_actions("oregon", found, bound, NOTHING) == (NOTHING, bound)


def test_what_isnt_a_boxs_is_left_alone() -> None:
    others = {
        name: QueueState(name, {}) for name in ("router.1", "box.x", "box.x.3", "box..1", "x")
    }
    bound = frozenset(Binding("postoffice", name) for name in others)
    known = frozenset({"intake", "postoffice", "amq.topic", "box", "boxes.1"})
    assert box_actions("oregon", others, bound, known) == (NOTHING, NOTHING)


def test_exchanges_and_bindings_that_a_box_may_not_have_go() -> None:
    wanted = frozenset(feed_bindings("oregon", "edge-1", FEED))
    more = frozenset({Binding("postoffice", FEED, "a.b"), Binding(FEED, box_queue("edge-1", 2))})
    made, gone = box_actions("oregon", queue(), wanted | more, frozenset({FEED, "intake"}))
    assert made == NOTHING
    assert gone == {Exchange(FEED), *more}


@pytest.mark.parametrize(
    ("name", "box"),
    [
        ("box.edge-1.1", "edge-1"),
        ("box.edge-1.2", "edge-1"),
        ("box.edge-1.3", None),
        ("box.edge-1", None),
        ("box..1", None),
        ("boxes.1", None),
        ("edge-1.1", None),
        ("box.edge.1.1", "edge.1"),
    ],
)
def test_a_queues_name_says_whose_it_is(name: str, box: str | None) -> None:
    assert box_of(name) == box


class Hasty:
    """A core on which a queue appears, and is bound by another keeper, during a look."""

    def __init__(self) -> None:
        self.looks = 0
        self.bound = False
        self.removed: list[Binding] = []
        self.seen = asyncio.Event()

    async def queues(self) -> dict[str, QueueState]:
        self.looks += 1
        if self.looks > 3:
            self.seen.set()
        return queue() if self.bound else {}

    async def bindings(self) -> set[Binding]:
        self.bound = True
        return set(feed_bindings("oregon", "edge-1", FEED))

    async def exchanges(self) -> dict[str, str]:
        return {}

    async def delete_binding(self, binding: Binding) -> None:
        self.removed.append(binding)

    def close(self) -> None:
        pass


async def test_what_another_keeper_binds_meanwhile_is_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    core = Hasty()
    monkeypatch.setattr("shovels.boxes.Management", lambda *_, **__: core)
    monkeypatch.setattr("shovels.boxes.EVERY", 0.0)
    node = Node(name="oregon-core-1", amqp_url="amqp://h", management_url="http://h")
    boxes = Boxes("oregon", {broker("oregon-core-1"): node}, Credentials())
    running = asyncio.create_task(boxes.run())
    async with asyncio.timeout(30):
        await core.seen.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert core.removed == []
