"""docs/operations: each command in it exists, and each link has a target."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

import fleet.__main__ as fleet_program
from fleet.plan import possible_machines
from operations.cli.group import cli as newsfabric

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted((ROOT / "docs/operations").glob("*.md"))
PLAYBOOKS = ROOT / "deploy/ansible/playbooks"
RUNBOOK = ROOT / "docs/runbook.md"
# Functions from the pages' README, words of the shell, and programs of every Debian.
_WORDS = {"export", "wait", "fleet()", "play()", "on()", "top()", "curl"}
_TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def commands(text: str) -> Iterator[list[str]]:
    """Yield the words of each command in the shell blocks of ``text``."""
    for block in re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words:
                yield words[: words.index("&")] if "&" in words else words


def of_click(group: click.Command, words: list[str]) -> None:
    """Fail unless ``words`` are a command of ``group`` with options that it has."""
    command, rest = group, list(words)
    context = click.Context(group)
    while isinstance(command, click.Group):
        name = next(word for word in rest if not word.startswith("-"))
        rest = rest[rest.index(name) + 1 :]
        found = command.get_command(context, name)
        assert found is not None, f"{name} is no command"
        command = found
    known = {option for one in command.params for option in (*one.opts, *one.secondary_opts)}
    given = {word.partition("=")[0] for word in rest if word.startswith("--")}
    assert given <= known, f"{command.name} has no {given - known}"


def play(words: list[str]) -> None:
    name = words[0]
    assert (PLAYBOOKS / name).is_file(), f"no playbook {name}"


def on(words: list[str]) -> None:
    assert words[0] in {machine.name for machine in possible_machines()}
    assert len(words) > 1


def fleet(words: list[str]) -> None:
    if words[0] == "run":
        check(words[1:])
        return
    of_click(fleet_program.cli, words)
    if words[0] in ("boot", "off", "pull-plug"):
        names = {word for word in words[1:] if not word.startswith("-")}
        assert names <= {machine.name for machine in possible_machines()}


def top(words: list[str]) -> None:
    of_click(newsfabric, ["top", *words])


def make(words: list[str]) -> None:
    assert {word for word in words if "=" not in word} <= _TARGETS


def program(words: list[str]) -> None:
    of_click(newsfabric, words)


KNOWN: dict[str, Callable[[list[str]], None]] = {
    "play": play,
    "on": on,
    "fleet": fleet,
    "make": make,
    "top": top,
    "newsfabric": program,
}


def check(words: list[str]) -> None:
    """Fail unless ``words`` are a command that exists."""
    name = words[0]
    if name in KNOWN:
        KNOWN[name](words[1:])
    elif "/" in name:
        assert (ROOT / name).is_file(), f"no {name}"
    else:
        assert name in _WORDS, f"{name} is no command of these pages"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_each_command_is_one_that_there_is(page: Path) -> None:
    found = list(commands(page.read_text()))
    assert found
    for words in found:
        check(words)


@pytest.mark.parametrize(
    "line",
    [
        "play no-such.yml",
        "on oregon-core-99 df",
        "on oregon-core-1",
        "fleet fly",
        "fleet boot oregon-core-99",
        "fleet run newsfabric tops",
        "make magic",
        "newsfabric status --stat .fleet",
        "newsfabric certs remake",
        "scripts/no-such",
        "rm -rf /",
    ],
)
def test_one_that_there_isnt_is_noticed(line: str) -> None:
    with pytest.raises(AssertionError):
        check(shlex.split(line))


@pytest.mark.parametrize("page", [*PAGES, RUNBOOK], ids=lambda page: page.stem)
def test_each_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)]+)\)", page.read_text()):
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), target
        if anchor:
            titles = re.findall(r"^#+ (.*)$", there.read_text(), re.MULTILINE)
            # GitHub makes anchors like these.
            anchors = {re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in titles}
            assert anchor in anchors, target


def test_the_index_has_every_page_and_the_runbook_leads_to_it() -> None:
    index = (ROOT / "docs/operations/README.md").read_text()
    for page in PAGES:
        assert page.name == "README.md" or f"({page.name})" in index
    assert "(operations/README.md)" in RUNBOOK.read_text()
    assert "(operations/README.md)" in (ROOT / "docs/README.md").read_text()
