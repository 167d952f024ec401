"""Nothing from outside moves a terminal's cursor, sets its title or reorders its lines."""

from __future__ import annotations

import ast
import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.table import Table
from rich.text import Text

from newsfabric.cli.console import console
from newsfabric.cli.group import Failure
from newsfabric.safe_output import terminal_safe

ROOT = Path(__file__).resolve().parents[2]
TITLE = "\x1b]0;mine\x07"
SAFE_TITLE = r"\u001b]0;mine\u0007"
#: The places that write to a terminal, and make it safe.
WRITERS = {"newsfabric/safe_output.py", "newsfabric/cli/console.py"}
PACKAGES = ("newsfabric", "shovels", "wholesale", "localfabric", "gateway", "retail")


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("Ein Zelt\tin Zürich 📰\nund mehr", "Ein Zelt\tin Zürich 📰\nund mehr"),
        (TITLE, SAFE_TITLE),
        ("a\x9b2Jb", r"a\u009b2Jb"),
        ("\rover\x7f", r"\u000dover\u007f"),
        ("\u202eevil\u2066\u200f", r"\u202eevil\u2066\u200f"),
        ("one\u2028two", r"one\u2028two"),
        ("\udc80", r"\udc80"),
    ],
)
def test_what_a_terminal_obeys_is_escaped(text: str, safe: str) -> None:
    assert terminal_safe(text) == safe


def test_json_means_the_same_afterwards() -> None:
    value = {"id": "\x9b\u202e\u2028\x7f", "text": 'a "quoted" \\ line\n'}
    written = json.dumps(value, ensure_ascii=False, indent=2)
    assert json.loads(terminal_safe(written)) == value


def test_tables_and_texts_are_safe() -> None:
    # rich leaves some controls out by itself, but not those that begin a command.
    table = Table("id", box=None)
    table.add_row("\x9bA")
    out = io.StringIO()
    console(file=out, width=80).print(table, Text("\u202ered", style="red"), "plain \x1b[2J")
    lines = [line.strip() for line in out.getvalue().splitlines()]
    assert lines == ["id", r"\u009bA", r"\u202ered plain \u001b[2J"]


def test_an_error_is_safe() -> None:
    said = io.StringIO()
    Failure(f"nobody knows {TITLE}").show(said)
    assert said.getvalue() == f"error: nobody knows {SAFE_TITLE}\n"


def _prints(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called in ("print", "click.echo", "click.secho", "Console", "rich.print"):
                yield node.lineno, called


def test_nothing_else_prints() -> None:
    found = [
        f"{file.relative_to(ROOT)}:{line}: {called}"
        for package in PACKAGES
        for file in sorted((ROOT / package).rglob("*.py"))
        if str(file.relative_to(ROOT)) not in WRITERS
        for line, called in _prints(ast.parse(file.read_text("utf-8")))
    ]
    assert found == []
