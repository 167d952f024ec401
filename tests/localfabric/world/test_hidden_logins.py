"""Passwords stay out of a broker's files, whatever happens to its shovels."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pika
import pytest
from resetting import ResettingWay

from localfabric.nodes.rabbitmq import LocalNode
from localfabric.world.hidden_logins import EXPRESSIONS, FILE, erl_flags
from localfabric.world.rabbitmq_home import RabbitmqHome
from newsfabric.brokers.management import Management
from newsfabric.settings import Credentials

pytestmark = pytest.mark.broker

PASSWORD = "Geheimes-Kennwort-0123456789"
BODY = b"x" * 500
TIMEOUT = 60.0


def logged(home: RabbitmqHome, folder: Path, *expressions: str) -> str:
    """Return the log of an Erlang without RabbitMQ that evaluates our file and ``expressions``."""
    file = folder / FILE
    file.write_text(EXPRESSIONS)
    log = folder / "broker.log"
    lines = "formatter => {logger_formatter, #{single_line => false}}"
    to = f'logger:add_handler(to, logger_std_h, #{{config => #{{file => "{log}"}}, {lines}}})'
    done = ", ".join([to, *expressions, "logger_std_h:filesync(to)", "halt(0)"])
    environment = {**os.environ, **home.environment, "ERL_AFLAGS": erl_flags(file)}
    subprocess.run(
        ["erl", "-noshell", "-eval", f"{done}."],
        env=environment, check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    return log.read_text()


def test_the_logins_of_uris_are_hidden_in_whatever_is_logged(
    rabbitmq_home: RabbitmqHome, tmp_path: Path
) -> None:
    folder = tmp_path / "a folder"
    folder.mkdir()
    uri = f'"amqp://shovel:{PASSWORD}@10.0.0.7:5672/%2F"'
    long = f'"amqp://shovel:{PASSWORD * 20}@10.0.0.7:5672/%2F"'
    text = logged(
        rabbitmq_home,
        folder,
        f'logger:error("state ~p", [#{{uris => [{uri}, <<{uri}>>], deep => [[[[[{long}]]]]]}}])',
        f"logger:error(#{{label => {{proc_lib, crash}}, report => [{uri}], uri => <<{uri}>>}})",
        f'logger:error("to " ++ {uri} ++ " and " ++ {uri} ++ " as a@b")',
        f"error_logger:error_report([{{uri, {uri}}}])",
        f"proc_lib:spawn(fun() -> put(uri, {uri}), error({{failed, {uri}}}) end)",
        "timer:sleep(300)",
    )
    assert PASSWORD[:12] not in text
    assert text.count("//***@10.0.0.7:5672/%2F") >= 10
    assert "as a@b" in text


def test_a_line_without_a_login_stays_as_it_is_and_one_that_fails_costs_no_other(
    rabbitmq_home: RabbitmqHome, tmp_path: Path
) -> None:
    text = logged(
        rabbitmq_home,
        tmp_path,
        'logger:error("two~nlines of ~ts", ["Zürich"])',
        'logger:error("~p ~p", [one])',
        'logger:error(<<255, 254, "amqp://a:b@c">>)',
        # A surrogate is no character, so it can't be written.
        'logger:error([16#d800 | "amqp://a:b@c"])',
        f'logger:error("amqp://shovel:{PASSWORD}@host")',
    )
    assert "two\nlines of Zürich" in text
    assert "(a line that can't be looked through for logins)" in text
    assert "amqp://***@host" in text
    assert "a:b@" not in text
    assert PASSWORD not in text


@pytest.fixture
def node(rabbitmq_factory: Callable[[], LocalNode]) -> Iterator[LocalNode]:
    made = rabbitmq_factory()
    made.start()
    yield made
    made.kill()


def written_by(node: LocalNode) -> dict[str, str]:
    """Return all files of the node but its database, in which RabbitMQ keeps shovels' URIs."""
    return {
        str(file.relative_to(node.folder)): file.read_text(errors="replace")
        for file in node.folder.rglob("*")
        if file.is_file() and "mnesia" not in file.relative_to(node.folder).parts
    }


async def test_no_file_of_a_broker_has_a_shovels_password_when_its_connection_is_reset_under_load(
    node: LocalNode,
) -> None:
    way = ResettingWay(node.broker.amqp_port)
    with way.running(), pika.BlockingConnection(pika.URLParameters(node.amqp_url)) as publisher:
        channel = publisher.channel()
        channel.queue_declare("from", durable=True)
        channel.queue_declare("to", durable=True)
        node.ctl("add_user", "shovel", PASSWORD)
        node.ctl("set_permissions", "shovel", ".*", ".*", ".*")
        uri = f"amqp://shovel:{PASSWORD}@127.0.0.1:{way.port}/%2F"
        ends = {"src-protocol": "amqp091", "src-uri": uri, "src-queue": "from"}
        ends |= {"dest-protocol": "amqp091", "dest-uri": uri, "dest-queue": "to"}
        async with Management(node.management_url, Credentials()) as api:
            await api.put_shovel("s", {**ends, "reconnect-delay": 1})

        def brings() -> None:
            """Wait until a message that is sent from now on has arrived."""
            channel.queue_purge("to")
            deadline = time.monotonic() + TIMEOUT
            while channel.queue_declare("to", passive=True).method.message_count < 100:
                assert time.monotonic() < deadline
                for _ in range(200):
                    channel.basic_publish("", "from", BODY)

        brings()
        for _ in range(3):
            assert way.reset() == 4
            brings()
    text = written_by(node)
    # Reported by the shovel's supervisor, or by the shovel itself.
    assert any("terminat" in log for log in text.values()), "no shovel has ended"
    assert [name for name, log in text.items() if PASSWORD[:16] in log] == []
