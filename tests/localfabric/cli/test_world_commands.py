"""The commands of worlds as a user meets them, where no world is needed."""

import socket
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from localfabric.cli import up
from localfabric.nodes.ports import free_ports
from localfabric.world.rabbitmq_home import RabbitmqHome
from operations.cli import cli


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "world"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments)


def test_down_without_a_world_is_no_error(state: Path) -> None:
    result = run("down", "--state", str(state))
    assert (result.exit_code, result.stdout) == (0, f"nothing is running in {state}\n")


def test_a_taken_port_is_one_line_and_leaves_nothing(
    state: Path, rabbitmq_home: RabbitmqHome
) -> None:
    (port,) = free_ports(1)
    with socket.create_server(("127.0.0.1", port)):
        result = run("up", "--detach", "--state", str(state), "--port-base", str(port))
    assert result.exit_code == 1
    assert result.stderr == (
        f"error: port {port} (Erlang's port mapper) is taken: "
        "stop what uses it, or choose --port-base\n"
    )
    assert not state.exists()


def test_a_missing_rabbitmq_is_one_line_that_names_it(
    state: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("NEWSFABRIC_RABBITMQ_HOME", str(tmp_path / "none"))
    result = run("up", "--state", str(state))
    assert result.exit_code == 1
    assert len(result.stderr.splitlines()) == 1
    assert "rabbitmq-server" in result.stderr
    assert not state.exists()


@pytest.mark.parametrize(
    ("named", "complaint"),
    [
        (["nowhere"], "nowhere has no sbin/rabbitmq-server"),
        (["oregon=nowhere"], "nowhere has no sbin/rabbitmq-server"),
        (["./a=b"], "a=b has no sbin/rabbitmq-server"),
        (["tokyo=nowhere"], "a RabbitMQ for 'tokyo', which is no region of this world"),
        (["x", "y"], "the whole world has two RabbitMQs"),
        (["dublin=x", "dublin=y"], "dublin has two RabbitMQs"),
    ],
)
def test_a_rabbitmq_that_cannot_be_run_is_one_line_before_anything_is_started(
    state: Path, named: list[str], complaint: str
) -> None:
    options = [word for name in named for word in ("--rabbitmq", name)]
    result = run("up", "--state", str(state), *options)
    assert result.exit_code != 0
    assert complaint in result.stderr.splitlines()[-1]
    assert not state.exists()


def test_a_folder_of_somebody_else_is_not_taken(state: Path, rabbitmq_home: RabbitmqHome) -> None:
    state.mkdir()
    (state / "thesis.txt").touch()
    result = run("up", "--detach", "--state", str(state), "--port-base", "22400")
    assert result.stderr == (
        f"error: {state} holds thesis.txt, which is no world's: choose --state\n"
    )
    assert (state / "thesis.txt").exists()


def test_a_missing_topics_file_is_named(state: Path, tmp_path: Path) -> None:
    missing = tmp_path / "none.toml"
    result = run("up", "--state", str(state), "--topics", str(missing))
    assert result.stderr == f"error: there is no {missing}: name it with --topics\n"


def test_feeds_come_from_here_then_from_the_wheel_then_from_the_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    installed = tmp_path / "installed.toml"
    monkeypatch.setattr(up, "_INSTALLED", installed)
    assert up.topics_file(None) == Path(__file__).resolve().parents[3] / "topics.toml"
    installed.touch()
    assert up.topics_file(None) == installed
    Path("topics.toml").touch()
    assert up.topics_file(None) == Path("topics.toml")
