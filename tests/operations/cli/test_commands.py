"""The commands as a user meets them, where no world is needed."""

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from operations.cli import cli
from operations.cli.options import with_state

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
GROUPS = ("certs", "certs rotate", "chaos", "logs", "schema", "shovels", "topics", "topology")


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "world"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments)


def test_help_lists_every_command_also_those_of_other_packages() -> None:
    text = run("--help").output
    assert all(f"  {name} " in text for name in (*COMMANDS, "shovels"))


def test_help_begins_with_the_life_of_a_world_and_ends_with_what_services_hang_in() -> None:
    rows = run("--help").output.partition("Commands:\n")[2].partition("\n\n")[0].splitlines()
    names = [row.split()[0] for row in rows]
    assert names[:4] == ["up", "status", "top", "down"]
    assert names[-3:] == ["chaos", "capacity", "shovels"]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_says_what_it_does_and_gives_examples(command: str) -> None:
    result = run(command, "--help")
    assert result.exit_code == 0
    assert f"Examples:\n  newsfabric {command}" in result.output.replace("\n    ", "\n  ")


@pytest.mark.parametrize("group", ["", *GROUPS])
def test_no_line_of_a_list_of_commands_is_cut_off(group: str) -> None:
    listed = run(*group.split(), "--help").output.partition("Commands:\n")[2]
    assert [line for line in listed.splitlines() if line.endswith("...")] == []
    assert listed


def test_help_loads_neither_drivers_nor_the_terminal_library() -> None:
    script = (
        "import sys; from operations.cli import cli; "
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
    hint = f"`newsfabric up --state {state}`"
    assert result.stderr == f"error: no world in {state}: start one with {hint}\n"


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
    hint = f"`newsfabric up --state {state}`"
    assert error == f"error: no world in {state}: start one with {hint}"


def test_a_world_in_a_folder_that_cannot_be_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    result = run("up", "--detach", "--state", f"{file}/world")
    assert result.exit_code == 1
    assert isinstance(result.exception, SystemExit)
    assert result.output.startswith("error: ")
    assert result.output.count("\n") == 1


def test_what_the_encoding_of_stdout_lacks_is_a_json_escape() -> None:
    script = (
        "import sys; from newsfabric.safe_output import echo, escape_what_has_no_place; "
        "from newsfabric.console import console; "
        "escape_what_has_no_place(); echo('\u00e9 \U0001f600'); console().print('\u00e9')"
    )
    smile = b"\\ud83d\\ude00"
    for encoding, acute in (("ascii", b"\\u00e9"), ("latin-1", b"\xe9")):
        done = subprocess.run(
            [sys.executable, "-c", script],
            capture_output=True,
            env={**os.environ, "PYTHONIOENCODING": encoding},
            check=True,
        )
        assert done.stdout.splitlines() == [acute + b" " + smile, acute]


@pytest.mark.parametrize(
    ("wrong", "meant"), [("stauts", "status"), ("dran", "drain"), ("shovel", "shovels")]
)
def test_an_unknown_command_is_answered_with_the_one_that_was_meant(wrong: str, meant: str) -> None:
    result = run(wrong)
    assert result.exit_code == 2
    assert f"No such command '{wrong}'; did you mean {meant}?" in result.output


def test_the_default_world_needs_no_option(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state.mkdir()
    monkeypatch.chdir(state)
    world = "error: no world in .world: start one with `newsfabric up`\n"
    assert run("status").output == world
    monkeypatch.setenv("NEWSFABRIC_STATE", str(state / ".world"))
    assert run("status").output == world


def test_a_command_that_has_no_world_stays_as_it_is(tmp_path: Path) -> None:
    root = click.Context(cli)
    root.meta["newsfabric.state"] = tmp_path / "a world"
    text = "`newsfabric certs init`, `newsfabric chaos heal` or `newsfabric up --state x`"
    assert with_state(text, root) == (
        "`newsfabric certs init`, "
        f"`newsfabric chaos heal --state '{tmp_path}/a world'` or `newsfabric up --state x`"
    )


def test_ctrl_c_ends_a_command_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(type(cli), "get_command", lambda *_: interrupted)
    assert run("anything").exit_code == 130
