import json
import os
import re
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from localfabric.nodes.rabbitmq import LocalNode
from localfabric.world.broker import (
    REFUSED,
    WorldBroker,
    advanced,
    answers,
    configuration,
    entrance,
    environment,
    prepare,
)
from localfabric.world.processes import MARKER
from localfabric.world.rabbitmq_home import RabbitmqHome
from newsfabric.errors import WorldError

HOME = RabbitmqHome(
    version="3.10.8", sbin=Path("/r/sbin"), epmd=Path("/r/epmd"), environment={"PATH": "/r/sbin"}
)


def broker(**fields: object) -> WorldBroker:
    defaults = {
        "name": "oregon-core-1",
        "folder": Path("/w/brokers/oregon-core-1"),
        "amqp_port": 1,
        "management_port": 2,
        "distribution_port": 3,
        "epmd_port": 4,
    }
    return WorldBroker(**{**defaults, **fields})  # type: ignore[arg-type]


def test_all_its_listeners_are_on_loopback() -> None:
    lines = configuration(broker(), "3.10.8").splitlines()
    assert "listeners.tcp.default = 127.0.0.1:1" in lines
    assert "management.tcp.ip = 127.0.0.1" in lines


def test_the_bounds_of_frames_and_messages_are_explicit_and_lower_at_an_entrance() -> None:
    inside = configuration(broker(), "3.10.8").splitlines()
    assert {"frame_max = 131072", "max_message_size = 1048576"} <= set(inside)
    outside = configuration(entrance(broker()), "4.0.5").splitlines()
    assert {"frame_max = 20480", "max_message_size = 131072"} <= set(outside)


def test_an_entrance_alone_is_asked_to_stamp_messages_where_it_knows_how() -> None:
    stamp = "message_interceptors.incoming.set_header_timestamp.overwrite = false"
    assert stamp in configuration(entrance(broker()), "3.13.7")
    assert stamp in configuration(entrance(broker()), "4.0.5")
    assert "interceptors" not in configuration(entrance(broker()), "3.10.8")
    assert "interceptors" not in configuration(broker(), "4.3.6")


def test_what_is_going_away_is_refused_in_words_that_any_version_starts_with() -> None:
    text = advanced(0)
    assert text.endswith("        transient_nonexcl_queues => false\n    }}\n]}].\n")
    assert re.findall(r"(\w+) => false", text) == list(REFUSED)
    assert "deprecated_features" not in configuration(broker(), "4.3.6")


def test_amqp_1_0_is_spoken_at_an_entrance_alone_and_within_bounds() -> None:
    assert (broker().sessions, entrance(broker()).sessions) == (0, 2)
    bounds = "    {session_max_per_connection, 2},\n    {link_max_per_session, 8},\n"
    assert bounds in advanced(2)


def test_a_persons_own_rabbitmq_settings_do_not_leak_into_a_node() -> None:
    person = {
        "RABBITMQ_NODENAME": "mine@host",
        "RABBITMQ_PLUGINS_DIR": "/mine",
        "ERL_FLAGS": "+mine",
        "NOTIFY_SOCKET": "/run/mine",
        "LANG": "C.UTF-8",
    }
    found = environment(broker(), HOME, person, marker=Path("/w"), erlang=Path("/w/erlang"))
    assert found["RABBITMQ_NODENAME"] == "oregon-core-1@localhost"
    assert found["LANG"] == "C.UTF-8"
    assert found[MARKER] == "/w"
    assert found["RABBITMQ_PLUGINS_DIR"] == "/w/brokers/oregon-core-1/plugins"
    assert not {"ERL_FLAGS", "NOTIFY_SOCKET"} & set(found)


@pytest.mark.broker
def test_a_killed_node_comes_back_on_the_same_ports(
    rabbitmq_factory: Callable[[], LocalNode],
) -> None:
    node = rabbitmq_factory()
    node.start()
    assert answers(node.broker.amqp_port)
    assert node.ctl("eval", "node().").strip() == "node@localhost"
    node.kill()
    assert not answers(node.broker.amqp_port)
    node.start()
    assert answers(node.broker.amqp_port)


@pytest.mark.broker
def test_a_node_permits_nothing_that_is_going_away(
    rabbitmq_factory: Callable[[], LocalNode],
) -> None:
    node = rabbitmq_factory()
    node.start()
    if node.version.startswith("3.10."):
        pytest.skip(f"RabbitMQ {node.version} has no such list")
    listed = json.loads(node.ctl("list_deprecated_features", "--formatter", "json"))
    going = ", ".join(sorted(feature["name"] for feature in listed))
    permitted = f"[F || F <- [{going}], rabbit_deprecated_features:is_permitted(F)]."
    assert "management_metrics_collection" in going
    # The lines above the result report each feature as refused.
    assert node.ctl("eval", permitted).splitlines()[-1] == "[]"


@pytest.mark.broker
def test_a_node_that_cannot_start_says_why(rabbitmq_home: RabbitmqHome, tmp_path: Path) -> None:
    node = LocalNode(tmp_path, rabbitmq_home, settings=["this.is.no.setting = 1"])
    try:
        with pytest.raises(Exception, match=r"(?s)node died.*failed_to_prepare_config"):
            node.start(timeout=60)
    finally:
        node.kill()


def test_a_machine_without_localhost_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(_name: str) -> str:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "gethostbyname", unknown)
    node = broker(folder=tmp_path / "node")
    with pytest.raises(WorldError, match=r'put "127\.0\.0\.1 localhost" into /etc/hosts'):
        prepare(node, HOME)
    assert not node.folder.exists()


def test_silence_and_other_protocols_are_no_broker(unused_tcp_port: int) -> None:
    assert not answers(unused_tcp_port)
    assert os.environ.get(MARKER) is None
