"""No text from outside moves a terminal's cursor, sets its title or reorders its lines."""

from __future__ import annotations

import ast
import io
import json
from pathlib import Path

import pytest
from rich.table import Table
from rich.text import Text

from newsfabric.console import console
from newsfabric.safe_output import confirm, terminal_safe
from operations.cli.group import Failure

ROOT = Path(__file__).resolve().parents[1]
TITLE = "\x1b]0;mine\x07"
SAFE_TITLE = r"\u001b]0;mine\u0007"
#: The places that write to a terminal, and make the text safe.
WRITERS = {"newsfabric/safe_output.py", "newsfabric/console.py"}
PACKAGES = (
    "newsfabric",
    "operations",
    "shovels",
    "wholesale",
    "localfabric",
    "gateway",
    "retail",
    "loadtest",
)


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
    # rich drops some control characters, but not those that begin a command.
    table = Table("id", box=None)
    table.add_row("\x9bA")
    out = io.StringIO()
    console(file=out, width=80).print(table, Text("\u202ered", style="red"), "plain \x1b[2J")
    lines = [line.strip() for line in out.getvalue().splitlines()]
    assert lines == ["id", r"\u009bA", r"\u202ered plain \u001b[2J"]


def test_an_error_is_safe() -> None:
    written = io.StringIO()
    Failure(f"nobody knows {TITLE}").show(written)
    assert written.getvalue() == f"error: nobody knows {SAFE_TITLE}\n"


# Functions that write to a terminal, by full name. A literal text of ours may be shown.
SPEAKS = (
    {f"builtins.{name}" for name in ("print", "input")}
    | {f"click.{name}" for name in ("echo", "secho", "echo_via_pager", "confirm", "prompt")}
    | {f"click.{name}" for name in ("progressbar", "ClickException", "UsageError")}
    | {f"click.{name}" for name in ("BadParameter", "BadOptionUsage", "BadArgumentUsage")}
    | {"click.FileError", "click.NoSuchOption", "rich.print", "rich.print_json"}
    | {"rich.console.Console", "rich.prompt.Prompt.ask", "rich.prompt.Confirm.ask"}
    | {"getpass.getpass", "os.write"}
)
# Functions that write their argument unless it is a number.
ENDS = {"sys.exit", "builtins.SystemExit"}
TERMINAL_SAFE = "newsfabric.safe_output.terminal_safe"
STREAMS = {"sys.stdout", "sys.stderr", "sys.__stdout__", "sys.__stderr__"}
#: Programs whose stdout is a pipe to a program of ours, and the contents of the pipe.
PIPES = {
    "operations/mirror/readers.py": "JSON lines for the mirror",
    "operations/hosts/services_program.py": "JSON for `newsfabric status`, from its machine",
    "localfabric/chaos/crowd.py": "events for the chaos run, of names and numbers",
}
#: Functions that get a stream and write safe text to it, or nothing.
SAFE_WITH = {"newsfabric.process.logs.log_to", "newsfabric.safe_output.echo"}


class _Speaking(ast.NodeVisitor):
    """A visitor for a module that finds writes to a terminal around our writers."""

    def __init__(self) -> None:
        self.found: list[tuple[int, str]] = []
        self._names = {name: f"builtins.{name}" for name in ("print", "input", "SystemExit")}

    def visit_Import(self, node: ast.Import) -> None:
        for one in node.names:
            self._names[one.asname or one.name] = one.name

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for one in node.names:
            self._names[one.asname or one.name] = f"{node.module}.{one.name}"

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self._note_stream(node)
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        self._note_stream(node)

    def visit_Call(self, node: ast.Call) -> None:
        called = self._full(node.func)
        # ``fail`` of click's context, under any name.
        is_fail = isinstance(node.func, ast.Attribute) and node.func.attr == "fail"
        is_harmless = self._is_status if called in ENDS else self._is_ours
        if (
            (called in SPEAKS | ENDS or is_fail) and not all(map(is_harmless, node.args[:1]))
        ) or called in ("builtins.print", "click.echo", "click.secho", "rich.console.Console"):
            self.found.append((node.lineno, called))
        arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
        for each in (node.func, *arguments):
            if not (called in SAFE_WITH and self._full(each) in STREAMS):
                self.visit(each)

    def _note_stream(self, node: ast.expr) -> None:
        if self._full(node) in STREAMS:
            self.found.append((node.lineno, self._full(node)))

    def _full(self, node: ast.expr) -> str:
        name, _, rest = ast.unparse(node).partition(".")
        return ".".join(filter(None, (self._names.get(name, name), rest)))

    def _is_ours(self, node: ast.expr) -> bool:
        """Return whether the text is a literal, or made safe."""
        is_safe = isinstance(node, ast.Call) and self._full(node.func) == TERMINAL_SAFE
        return isinstance(node, ast.Constant) or is_safe

    def _is_status(self, node: ast.expr) -> bool:
        """Return whether the exit argument is no text, as far as can be seen."""
        return not any(
            isinstance(each, ast.JoinedStr)
            or (isinstance(each, ast.Call) and self._full(each.func) in ("str", "repr"))
            for each in ast.walk(node)
        )


def speaking(text: str) -> list[tuple[int, str]]:
    """Return (line, name) of writes to a terminal around our writers, in the module ``text``."""
    visitor = _Speaking()
    visitor.visit(ast.parse(text))
    return sorted(set(visitor.found))


@pytest.mark.parametrize(
    ("planted", "name"),
    [
        ("print(reason)", "builtins.print"),
        ("print('done')", "builtins.print"),
        ("import click\nclick.echo(reason)", "click.echo"),
        ("import click\nclick.confirm(f'{name} goes. Sure?', abort=True)", "click.confirm"),
        ("import click\nclick.prompt(name)", "click.prompt"),
        ("from click import confirm as ask\nask(text)", "click.confirm"),
        ("import click\nraise click.ClickException(str(exc)) from exc", "click.ClickException"),
        ("import click\nraise click.UsageError(f'{name} is none')", "click.UsageError"),
        ("import click\nraise click.BadParameter(str(exc), param=it)", "click.BadParameter"),
        ("from click import BadParameter\nraise BadParameter(text)", "click.BadParameter"),
        ("ctx.fail(f'no {name}')", "ctx.fail"),
        ("import sys\nsys.stdout.write(text)", "sys.stdout"),
        ("import sys\nsys.stderr.write(text)", "sys.stderr"),
        ("import sys\nsys.stdout.buffer.write(body)", "sys.stdout"),
        ("import sys\nout = sys.stdout\nout.write(text)", "sys.stdout"),
        ("from sys import stdout as out\nout.write(text)", "sys.stdout"),
        ("import sys\nsay_to(sys.stderr)", "sys.stderr"),
        ("import os\nos.write(1, text)\nos.write(fd, text)", "os.write"),
        ("import sys\nsys.exit(f'no {name}')", "sys.exit"),
        ("raise SystemExit(str(exc))", "builtins.SystemExit"),
        ("from rich import print\nprint(text)", "rich.print"),
        ("from rich.console import Console\nConsole().print(text)", "rich.console.Console"),
        ("from rich.prompt import Confirm\nConfirm.ask(text)", "rich.prompt.Confirm.ask"),
        ("answer = input(name)", "builtins.input"),
        ("import getpass\ngetpass.getpass(f'key of {name}: ')", "getpass.getpass"),
    ],
)
def test_each_way_to_speak_is_found(planted: str, name: str) -> None:
    assert name in [found for _, found in speaking(planted)]


@pytest.mark.parametrize(
    "planted",
    [
        "import click\nraise click.UsageError('name at least one')",
        "import click\nfrom newsfabric.safe_output import confirm, terminal_safe\n"
        "raise click.UsageError(terminal_safe(str(exc)))",
        "from newsfabric.safe_output import echo\nimport sys\necho(text, file=sys.stderr)",
        "from newsfabric.process import logs\nimport sys\nlogs.log_to(sys.stderr, 'info')",
        "import sys\nsys.exit(0 if good else 1)\nsys.exit(128 + 2)\nraise SystemExit(1)",
    ],
)
def test_what_is_safe_is_left_alone(planted: str) -> None:
    assert speaking(planted) == []


def test_a_question_is_safe(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr("click.confirm", lambda text, **_: asked.append(text))
    confirm(f"{TITLE} goes. Sure?")
    assert asked == [f"{SAFE_TITLE} goes. Sure?"]


def test_nothing_else_speaks_to_a_terminal() -> None:
    found = {
        f"{file.relative_to(ROOT)}:{line}: {name}"
        for package in PACKAGES
        for file in sorted((ROOT / package).rglob("*.py"))
        if str(file.relative_to(ROOT)) not in WRITERS | PIPES.keys()
        for line, name in speaking(file.read_text("utf-8"))
    }
    assert found == set()
