"""The commands as a person meets them, where no world is needed."""

import socket
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from newsfabric.cli import cli, up
from newsfabric.world.rabbitmq_home import RabbitmqHome

COMMANDS = (
    "up",
    "status",
    "down",
    "publish",
    "tail",
    "replay",
    "trace",
    "rejected",
    "top",
    "mirror",
)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "world"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments)


def test_help_lists_every_command_also_those_of_other_packages() -> None:
    text = run("--help").output
    assert all(f"  {name} " in text for name in (*COMMANDS, "shovels"))


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_says_what_it_does_and_gives_examples(command: str) -> None:
    result = run(command, "--help")
    assert result.exit_code == 0
    assert f"Examples:\n  newsfabric {command}" in result.output.replace("\n    ", "\n  ")


def test_help_loads_neither_drivers_nor_the_terminal_library() -> None:
    script = (
        "import sys; from newsfabric.cli import cli; "
        "cli(['--version'], standalone_mode=False); "
        "print(sorted({'pika', 'tornado', 'rich', 'uvloop'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "[]", done.stderr


def test_an_unknown_command_is_a_usage_error() -> None:
    assert run("fly").exit_code == 2


@pytest.mark.parametrize("command", [("status",), ("rejected",)])
def test_without_a_world_there_is_one_line_and_exit_code_1(
    command: tuple[str, ...], state: Path
) -> None:
    result = run(*command, "--state", str(state))
    assert result.exit_code == 1
    assert result.stderr == f"error: no world in {state}: start one with `newsfabric up`\n"


def test_down_without_a_world_is_no_error(state: Path) -> None:
    result = run("down", "--state", str(state))
    assert (result.exit_code, result.stdout) == (0, f"nothing is running in {state}\n")


def test_a_taken_port_is_one_line_and_leaves_nothing(
    state: Path, rabbitmq_home: RabbitmqHome
) -> None:
    with socket.create_server(("127.0.0.1", 22400)):
        result = run("up", "--detach", "--state", str(state), "--port-base", "22400")
    assert result.exit_code == 1
    assert result.stderr == (
        "error: port 22400 (Erlang's port mapper) is taken: "
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
    assert result.stderr == f"error: there is no {missing}: say where it is with --topics\n"


def test_feeds_come_from_here_then_from_the_wheel_then_from_the_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    installed = tmp_path / "installed.toml"
    monkeypatch.setattr(up, "_INSTALLED", installed)
    assert up.topics_file(None) == Path(__file__).resolve().parents[2] / "topics.toml"
    installed.touch()
    assert up.topics_file(None) == installed
    Path("topics.toml").touch()
    assert up.topics_file(None) == Path("topics.toml")


def test_a_bad_recording_is_found_before_a_world_is_looked_for(state: Path, tmp_path: Path) -> None:
    file = tmp_path / "day.jsonl"
    file.write_text("{}\n")
    result = run("replay", str(file), "--state", str(state))
    assert result.stderr == f"error: {file}:1: body is missing\n"


def test_publishing_where_no_world_begins_is_an_error(state: Path) -> None:
    result = run("publish", "news.x", "{}", "--state", str(state))
    assert result.exit_code == 1
    waiting, error = result.stderr.splitlines()
    assert waiting == f"no world in {state} yet; waiting 3 s for one to start"
    assert error == f"error: no world in {state}: start one with `newsfabric up`"


def test_ctrl_c_ends_a_command_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(type(cli), "get_command", lambda *_: interrupted)
    assert run("anything").exit_code == 130
