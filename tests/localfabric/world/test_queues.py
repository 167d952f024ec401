from pathlib import Path

import pytest

from localfabric.world.layout import WorldLayout, lay_out
from localfabric.world.options import WorldOptions
from localfabric.world.queues import find_queues, queues
from newsfabric.errors import ConfigError
from newsfabric.topics import TopicTable, load_topics
from newsfabric.topology import Broker, Cluster, shovel_plan

TOPICS: TopicTable = load_topics(Path(__file__).resolve().parents[3] / "topics.toml")
STATE = Path("/tmp/w")


def _world(**options: int) -> WorldLayout:
    return lay_out(WorldOptions(regions=("oregon", "dublin"), **options), STATE)  # type: ignore[arg-type]


def test_a_queue_is_called_by_where_it_is_and_what_it_is_for() -> None:
    found = queues(_world(), TOPICS)
    assert {name: queue.kind for name, queue in found.items() if "dublin" not in name} == {
        "oregon-client-1/shovel.publish.oregon.1": "region queue",
        "oregon-core-1/router.1": "router queue",
        "oregon-core-1/router.2": "router queue",
        "oregon-core-1/mailbox": "mailbox queue",
        "oregon-core-1/rejected": "rejected queue",
        "oregon-core-1/shovel.receipts.1": "receipts queue",
        "oregon-core-1/box.oregon-retail-1.1": "feed queue",
        "oregon-retail-1/gateway": "gateway queue",
        "oregon-retail-1/shovel.upstream": "upstream queue",
    }
    assert found["oregon-client-1/shovel.publish.dublin.1"].kind == "region queue"
    assert found["dublin-core-1/shovel.outbound.oregon.1"].kind == "region queue"


def test_every_queue_of_the_plan_can_be_lost_on_its_broker() -> None:
    layout = _world(core_nodes=3)
    found = queues(layout, TOPICS)
    (oregon, _) = layout.regions
    plan = shovel_plan(layout.fabric(), "oregon", TOPICS)
    for laid in oregon.core:
        for queue in plan[Broker(Cluster("oregon", "core"), laid.name)].queues:
            there = found[f"{laid.name}/{queue.name}"]
            assert (there.queue, there.management) == (queue.name, laid.management_url)
    # A box has a feed from each of two brokers.
    feeds = {name for name, queue in found.items() if "box.oregon-retail-1." in queue.queue}
    first, second = sorted(feeds, key=lambda name: name[-1])
    assert first.endswith("/box.oregon-retail-1.1")
    assert second.endswith("/box.oregon-retail-1.2")
    assert first.partition("/")[0] != second.partition("/")[0]


def test_a_wrong_queue_is_answered_with_the_right_one() -> None:
    (found,) = find_queues(_world(), TOPICS, ["oregon-core-1/router.1"] * 2)
    assert found.name == "oregon-core-1/router.1"
    with pytest.raises(ConfigError, match=r"did you mean oregon-core-1/router\.1\?"):
        find_queues(_world(), TOPICS, ["oregon-core-1/ruoter.1"])
