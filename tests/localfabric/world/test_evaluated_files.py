"""A broker runs with all files that Erlang evaluates before it begins, or not at all."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pika
import pytest
import yaml
from pika.exceptions import ChannelClosedByBroker

from localfabric.nodes.rabbitmq import LocalNode
from localfabric.world import bounded_declarations, hidden_logins
from localfabric.world.broker import answers
from localfabric.world.rabbitmq_home import RabbitmqHome
from newsfabric.errors import WorldError

pytestmark = pytest.mark.broker

PLAYBOOKS = Path(__file__).parents[3] / "deploy" / "ansible" / "playbooks"
BROKEN = {
    "isn't Erlang": ("ok = (.", "syntax error"),
    "fails": ("X = 1, error({oops, X}).", "{oops,1}"),
}
# The process that restores the interceptor; Erlang's own supervisor restarts it.
KEEPER = (
    "element(2, lists:keyfind(newsfabric_bounds, 1, supervisor:which_children(kernel_safe_sup)))"
)


@pytest.mark.parametrize("fault", list(BROKEN))
@pytest.mark.parametrize("evaluated", [hidden_logins, bounded_declarations])
def test_a_broker_with_a_broken_file_does_not_start_and_says_why(
    rabbitmq_home: RabbitmqHome,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    evaluated: ModuleType,
    fault: str,
) -> None:
    text, why = BROKEN[fault]
    monkeypatch.setattr(evaluated, "EXPRESSIONS", text)
    with (
        pytest.raises(WorldError, match=r"node died \(1\)") as error,
        LocalNode(tmp_path, rabbitmq_home),
    ):
        pytest.fail("it runs")
    assert str(tmp_path / "node" / evaluated.FILE) in str(error.value)
    assert why in str(error.value)


def evaluates(home: RabbitmqHome, file: Path) -> tuple[int, str]:
    """Return the exit code of an Erlang that is given ``file``, and its output."""
    done = subprocess.run(
        ["erl", "-noshell", "-eval", 'io:format("began"), halt(0).'],
        env={
            **os.environ,
            **home.environment,
            "ERL_AFLAGS": hidden_logins.erl_flags(file),
            "ERL_CRASH_DUMP_BYTES": "0",
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_a_file_may_have_any_name_and_must_be_there(
    rabbitmq_home: RabbitmqHome, tmp_path: Path
) -> None:
    file = tmp_path / 'a "folder\'s" file\\n.eval'
    code, output = evaluates(rabbitmq_home, file)
    assert (code, "enoent" in output, "began" in output) == (1, True, False)
    file.write_text("true = 1 < 2.\n")
    assert evaluates(rabbitmq_home, file) == (0, "began")


@pytest.fixture(scope="module")
def node(
    rabbitmq_home: RabbitmqHome, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalNode]:
    with LocalNode(tmp_path_factory.mktemp("node"), rabbitmq_home) as made:
        yield made


def is_bounded(node: LocalNode) -> bool:
    arguments = {f"x{n}": None for n in range(1000)}
    with pika.BlockingConnection(pika.URLParameters(node.amqp_url)) as connection:
        channel = connection.channel()
        try:
            channel.queue_declare("", exclusive=True, arguments=arguments)
        except ChannelClosedByBroker as refusal:
            return "arguments of more than 1 KiB" in refusal.reply_text
    return False


def test_the_bounds_outlast_their_keeper_and_a_broker_that_begins_again(node: LocalNode) -> None:
    before = node.ctl("eval", f"{KEEPER}.")
    node.ctl("eval", f"exit({KEEPER}, kill).")
    assert node.ctl("eval", f"{KEEPER}.") != before
    assert is_bounded(node)
    node.ctl("eval", "rabbit:stop(), rabbit:start().")
    assert is_bounded(node)


def asked_by_verify() -> str:
    """Return the expression that ``verify.yml`` has a broker evaluate."""
    tasks = yaml.safe_load((PLAYBOOKS / "tasks" / "brokers.yml").read_text())
    [block] = [
        task["block"]
        for task in tasks
        if task["name"] == "Check hidden logins and bounded declarations"
    ]
    expression: str = block[0]["ansible.builtin.command"]["argv"][-1]
    return expression


def test_operators_learn_that_a_broker_has_lost_what_it_evaluated(node: LocalNode) -> None:
    asked = asked_by_verify()
    assert node.ctl("eval", asked).strip() == "{true,true}"
    node.ctl("eval", "logger:remove_primary_filter(hidden_logins).")
    node.ctl("eval", 'rabbit_registry:unregister(channel_interceptor, <<"newsfabric">>).')
    assert node.ctl("eval", asked).strip() == "{false,false}"


def test_a_broker_whose_bounds_cannot_be_kept_ends(
    rabbitmq_home: RabbitmqHome, tmp_path: Path
) -> None:
    with LocalNode(tmp_path, rabbitmq_home) as node:
        for _ in range(4):
            node.ctl("eval", f"exit({KEEPER}, kill).")
        assert is_bounded(node)
        with pytest.raises(WorldError):
            node.ctl("eval", f"exit({KEEPER}, kill), timer:sleep(60000).")
        assert not answers(node.broker.amqp_port)
