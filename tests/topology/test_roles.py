"""The fabric's own users: the effect of their rights; topology and rights agree."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from fabrics import TOPICS, fabric
from hypothesis import given
from hypothesis import strategies as st

from newsfabric.errors import ConfigError
from newsfabric.kinds import CORE
from newsfabric.settings import dump_fabric
from newsfabric.topics import PublisherRights
from newsfabric.topology import MAILBOX_QUEUE, Cluster, box_queue, region_links, router_queues
from newsfabric.topology.plan import shovel_plan
from newsfabric.topology.rights import User, beginning, exactly, limits, one_of, publisher
from newsfabric.topology.roles import box_user, cluster_users, core_box, user_name, vouches
from newsfabric.topology.values import MAX_QUEUES
from operations.cli.users import users

ROOT = Path(__file__).parents[2]
KNOWN = fabric(client=2, core=3, proxy=2)
names = st.from_regex(r"[a-z0-9][a-z0-9-]{0,20}", fullmatch=True)


def on(cluster: Cluster, *boxes: str) -> dict[str, User]:
    return {user.name: user for user in cluster_users(KNOWN, TOPICS, cluster, boxes)}


def allowed(user: User, kind: str) -> re.Pattern[str]:
    return re.compile(user.permissions()[kind])


def test_a_cluster_knows_its_own_services_and_everyones_keepers() -> None:
    keepers = {"keeper.oregon", "keeper.dublin"}
    shovels = {"shovel.oregon", "shovel.dublin"}
    services = {f"{kind}.oregon" for kind in CORE}
    box = {"box.edge-1"}
    assert set(on(Cluster("oregon", "core"), "edge-1")) == services | keepers | shovels | box
    assert set(on(Cluster("oregon", "client"))) == {"frontdesk.oregon"} | keepers | shovels
    assert set(on(Cluster("harbor", "proxy"))) == keepers | shovels


def test_a_users_name_is_no_publishers() -> None:
    found = on(Cluster("oregon", "core"), "edge-1").keys() | on(Cluster("oregon", "client")).keys()
    assert all("." in name for name in found)


def test_keepers_make_shovels_at_home_and_nowhere_else() -> None:
    tags = {name: set(user.tags) for name, user in on(Cluster("oregon", "core"), "b").items()}
    assert tags["keeper.oregon"] == {"monitoring", "policymaker"}
    assert tags["keeper.dublin"] == {"monitoring"}
    assert not any(found for name, found in tags.items() if not name.startswith("keeper."))


@pytest.mark.parametrize("region", ["oregon", "dublin"])
def test_a_keeper_and_its_shovels_may_do_what_the_plan_wants_of_them(region: str) -> None:
    for link in region_links(KNOWN, region, TOPICS):
        source = on(link.source)
        keeper, shovel = source[f"keeper.{region}"], source[f"shovel.{region}"]
        queue = link.queue.name
        assert all(allowed(keeper, kind).match(queue) for kind in ("configure", "write"))
        assert allowed(shovel, "read").match(queue)
        for other in {"oregon", "dublin"} - {region}:
            assert not allowed(source[f"shovel.{other}"], "read").match(queue)
        assert allowed(keeper, "read").match(link.exchange)
        if link.destination:
            keeper = on(link.runs_on)[f"keeper.{region}"]
            assert allowed(keeper, "read").match(link.destination)


@pytest.mark.parametrize("region", ["oregon", "dublin"])
def test_a_keeper_may_make_every_binding_of_the_plan(region: str) -> None:
    made = set()
    for broker, part in shovel_plan(KNOWN, region, TOPICS).items():
        keeper = on(broker.cluster)[f"keeper.{region}"]
        # An exchange that isn't listed there takes any key.
        keys = {each["exchange"]: each["read"] for each in keeper.topic_permissions()}
        for binding in part.bindings:
            made.add((binding.exchange, binding.key))
            assert allowed(keeper, "write").match(binding.queue), binding
            assert allowed(keeper, "read").match(binding.exchange), binding
            assert re.match(keys.get(binding.exchange, ""), binding.key), binding
    assert {("upstream", "_fabric.mark"), ("intake", "#"), ("outbound", "#")} <= made


@given(names, names)
def test_a_box_touches_no_other_boxs_queues(mine: str, other: str) -> None:
    user = core_box("oregon", mine)
    for kind in ("configure", "read"):
        for queue in (box_queue(other, 1), box_queue(other, 2)):
            assert (allowed(user, kind).match(queue) is not None) == (mine == other)
    for kind in ("configure", "write", "read"):
        for queue in (*router_queues(), MAILBOX_QUEUE, "rejected", "shovel.receipts.1"):
            assert not allowed(user, kind).match(queue)


@given(names, names)
def test_a_box_reports_in_its_own_name(mine: str, other: str) -> None:
    (upstream,) = (
        entry
        for entry in core_box("oregon", mine).topic_permissions()
        if entry["exchange"] == "upstream"
    )
    for kind in ("load", "report"):
        found = re.match(upstream["write"], f"_fabric.{kind}.oregon.{other}")
        assert (found is not None) == (mine == other)
    assert upstream["read"] == "^$"


@given(names)
def test_who_is_no_keeper_declares_nothing_under_which_an_exchange_does_harm(box: str) -> None:
    """RabbitMQ refuses the declaration of ``amq.*``. A box may bind nothing, and may not publish to
    its own queues."""
    clusters = (Cluster("oregon", "core"), Cluster("oregon", "client"), Cluster("harbor", "proxy"))
    known = [user for cluster in clusters for user in on(cluster).values()]
    known += [publisher(PublisherRights("cms", ("#",))), core_box("oregon", box)]
    for user in known:
        if user.name.startswith("keeper."):
            continue
        own = (box_queue(box, 1), box_queue(box, 2)) if user.name.startswith("box.") else ()
        for name in ("x", "cms.x", "frontdesk.x", "scaler.x", "box.x.1", "publish", *own):
            assert (allowed(user, "configure").match(name) is not None) == (name in own)
            assert name in {"publish"} or not allowed(user, "write").match(name)


@given(names)
def test_publishers_and_boxes_bind_nothing(box: str) -> None:
    mine = ("amq.gen-x", box_queue(box, 1), box_queue(box, 2), f"box.{box}.x")
    for user in (publisher(PublisherRights("cms", ("#",))), core_box("oregon", box)):
        assert not any(map(allowed(user, "write").match, mine))


def test_services_report_for_their_own_region_and_frontdesks_hear_them() -> None:
    users = on(Cluster("oregon", "core"), "edge-1")
    rights = {
        name: entry
        for name, user in users.items()
        for entry in user.topic_permissions()
        if entry["exchange"] == "upstream"
    }
    for kind in CORE:
        name = f"{kind}.oregon"
        assert re.match(rights[name]["write"], "_fabric.report.oregon.any-name")
        assert not re.match(rights[name]["write"], "_fabric.report.dublin.any-name")
        assert not re.match(rights[name]["write"], "_fabric.load.oregon.edge-1")
        assert allowed(users[name], "write").match("upstream")
    assert re.match(rights["frontdesk.oregon"]["read"], "_fabric.report.oregon.*")
    assert not allowed(users["keeper.dublin"], "write").match("upstream")


def test_a_scaler_orders_boxes_of_its_region_to_drain_and_hears_their_load() -> None:
    scaler = on(Cluster("oregon", "core"))["scaler.oregon"]
    rights = {entry["exchange"]: entry for entry in scaler.topic_permissions()}
    assert set(rights) == {"orders", "upstream"}
    assert not allowed(scaler, "write").match("postoffice")
    assert re.match(rights["orders"]["write"], "_fabric.drain.oregon.edge-1")
    for key in ("_fabric.drain.dublin.edge-1", "_fabric.tick.oregon", "news.breaking"):
        assert not re.match(rights["orders"]["write"], key)
    assert rights["orders"]["read"] == "^$"
    assert re.match(rights["upstream"]["read"], "_fabric.load.oregon.*")
    for key in ("_fabric.load.dublin.*", "_fabric.report.oregon.*", "_fabric.mark", "#"):
        assert not re.match(rights["upstream"]["read"], key)
    assert not re.match(rights["upstream"]["write"], "_fabric.load.oregon.edge-1")
    assert allowed(scaler, "configure").match("amq.gen-x")
    for name in (*router_queues(), "box.edge-1.1", "postoffice", "upstream", "intake"):
        assert not allowed(scaler, "configure").match(name)
    assert not on(Cluster("oregon", "client")).keys() & {"scaler.oregon"}


def test_whoever_may_nothing_matches_nothing() -> None:
    assert one_of([]) == "^$"
    assert box_user("edge-1").topic_permissions() == []


def test_names_are_taken_to_the_letter() -> None:
    assert re.fullmatch(exactly("a.b-c.*"), "a.b-c.*")
    assert not re.fullmatch(exactly("a.b"), "axb")
    assert re.fullmatch(beginning("box.a."), "box.a.1.x")
    assert not re.fullmatch(beginning("box.a."), "box.ab.1")


def test_frontdesks_vouch_and_nobody_else() -> None:
    assert vouches(user_name("frontdesk", "oregon"))
    assert not vouches("frontdesk")
    assert not vouches(publisher(PublisherRights("frontdesk-x", ("#",))).name)


def test_what_others_declare_is_bounded_and_the_fabrics_own_is_not() -> None:
    policy, shovels, most = limits("client")["parameters"]
    pattern = re.compile(policy["value"]["pattern"])
    assert policy["value"]["definition"] == {
        "max-length": 10_000,
        "max-length-bytes": 8 << 20,
        "message-ttl": 60_000,
        "expires": 1_800_000,
    }
    assert all(pattern.match(name) for name in ("cms.receipts.x", "amq.gen-x", "x", "shovels.x"))
    own = ("shovel.publish.oregon.1", "keeper.oregon.x")
    assert not any(pattern.match(name) for name in own)
    assert [name for name in own if re.match(shovels["value"]["pattern"], name)] == [own[0]]
    assert most["value"] == {"max-queues": MAX_QUEUES}
    boxes = re.compile(limits("core")["parameters"][0]["value"]["pattern"])
    assert boxes.match("box.edge-1.hoard")
    assert not any(map(boxes.match, router_queues()))


def test_operators_hear_of_half_of_the_queues_that_a_broker_may_have() -> None:
    rules = (ROOT / "deploy" / "observability" / "rules" / "alerts.yml").read_text()
    most = f"newsfabric_shovels_broker_queues) > {MAX_QUEUES // 2}\n"
    assert most in rules
    assert f"queues of {MAX_QUEUES:,}: a client declares without end" in rules


def test_the_command_prints_what_a_cluster_must_know_and_keeps_the_passwords(
    tmp_path: Path,
) -> None:
    fabric_file, topics_file = tmp_path / "fabric.json", tmp_path / "topics.toml"
    fabric_file.write_text(dump_fabric(KNOWN), "utf-8")
    topics_file.write_text('[[topic]]\npattern = "news.#"\n', "utf-8")
    folder = tmp_path / "users"

    def printed(*words: str) -> dict[str, list[dict[str, str]]]:
        files = [f"--fabric={fabric_file}", f"--topics={topics_file}", f"--passwords={folder}"]
        done = CliRunner().invoke(users, [*words, *files], catch_exceptions=False)
        assert all(path.read_text().strip() not in done.output for path in folder.iterdir())
        found: dict[str, list[dict[str, str]]] = json.loads(done.output)
        return found

    core = printed("oregon/core", "--box=edge-1")
    assert {user["name"] for user in core["users"]} == set(on(Cluster("oregon", "core"), "edge-1"))
    assert [entry["component"] for entry in core["parameters"]] == [
        "operator_policy",
        "operator_policy",
        "vhost-limits",
    ]
    box = printed("edge-1/box")
    assert [user["name"] for user in box["users"]] == ["box.edge-1"]
    assert (folder / "box.edge-1").stat().st_mode & 0o777 == 0o600
    for wrong in ("oregon", "nowhere/core", "oregon/proxy", "oregon/x", "a.b/box"):
        with pytest.raises(ConfigError):
            printed(wrong)
