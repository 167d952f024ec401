"""Plays every command of the command line where it can't write its output, or a folder.

``python every_command.py FOLDER``: runs one process for each command of the tree and each failure,
forked from this one, so that the common imports happen once. Prints a line of JSON for each:
command, way, exit code (below 0 for a signal), stderr.

No world runs, so a command's effect in a world isn't played. A new command is played without a
change here; a word that it needs is made up from the word's type, or listed in :data:`WORDS`.
"""

from __future__ import annotations

import importlib
import io
import json
import os
import pkgutil
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import click

from newsfabric.settings import Fabric, Node, Region, dump_fabric

# No process can make a folder there, not even root's.
REFUSED: Final = "/sys/kernel/newsfabric"
SECONDS: Final = 60

# Words not made up from their type. A command that would start a process is refused before that.
WORDS: Final = {
    "where": "oregon/core",
    "body": "{}",
    "numbers": "1",
    "store": f"sqlite:{REFUSED}/store.sqlite",
    "regions": ",",
}

_NODE: Final = Node("oregon-1", "amqp://127.0.0.1:9/%2F", "http://127.0.0.1:9")
FABRIC: Final = Fabric(
    (Region(name="oregon", frontdesk_url="http://127.0.0.1:9", client=(_NODE,), core=(_NODE,)),)
)
PUBLISHER: Final = '\n[[publisher]]\napp_id = "cms"\ntopics = ["news.#"]\n'


def commands() -> Iterator[tuple[str, click.Command]]:
    """Yield every command that isn't a group, with the words that call it."""
    from operations.cli import cli

    yield from _below(cli, "", None)


def _below(
    command: click.Command, words: str, above: click.Context | None
) -> Iterator[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        yield words, command
        return
    context = click.Context(command, parent=above)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        yield from _below(found, f"{words} {name}".strip(), context)


def arguments(command: click.Command, folder: Path, *, refused: bool) -> list[str]:
    """Return words for all required parameters and all folders; ``refused``: that can't be made."""
    options: list[str] = []
    plain: list[str] = []
    for each in command.params:
        word = _word(each, folder, refused=refused)
        if word is None:
            continue
        if isinstance(each, click.Argument):
            plain.append(word)
        else:
            options += [max(each.opts, key=len), word]
    return [*options, *plain]


def _word(each: click.Parameter, folder: Path, *, refused: bool) -> str | None:
    kind = each.type
    name = str(each.name)
    if name in WORDS and (each.required or name == "regions"):
        return WORDS[name]
    if isinstance(kind, click.Path) and not kind.file_okay:
        return REFUSED if refused else str(folder / name)
    if not each.required:
        return None
    if isinstance(kind, click.Path | click.File):
        return f"{REFUSED}/{name}" if refused else str(folder / "file")
    if isinstance(kind, click.Choice):
        return str(next(iter(kind.choices)))
    if isinstance(kind, click.IntRange):
        return str(kind.min or 0)
    return name


def _nobody_reads() -> int:
    reads, writes = os.pipe()
    os.close(reads)
    return writes


def _nowhere() -> int:
    return os.open(os.devnull, os.O_WRONLY)


def _full() -> int:
    return os.open("/dev/full", os.O_WRONLY)


#: A failure: stdout's target and encoding, and whether the command is only called with ``--help``.
WAYS: Final[Mapping[str, tuple[Callable[[], int], str, bool]]] = {
    "help that nobody reads": (_nobody_reads, "utf-8", True),
    "help on a full disk": (_full, "utf-8", True),
    "help in ASCII": (_nowhere, "ascii", True),
    "nobody reads": (_nobody_reads, "utf-8", False),
    "a full disk": (_full, "utf-8", False),
    "ASCII": (_nowhere, "ascii", False),
    "a folder that can't be written": (_nowhere, "utf-8", False),
}


def play(words: str, command: click.Command, way: str, folder: Path) -> tuple[int, str]:
    """Return the exit code and stderr of one command that meets one failure."""
    output = folder / "output"
    child = os.fork()
    if child == 0:
        os._exit(_child(words, command, way, folder, output))
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status), output.read_text(errors="replace")


def _child(words: str, command: click.Command, way: str, folder: Path, file: Path) -> int:
    from operations.cli import cli

    signal.alarm(SECONDS)
    stdout, encoding, asks_help = WAYS[way]
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(stdout(), 1)
    os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
    sys.stdout = _stream(1, encoding)
    sys.stderr = _stream(2, encoding)
    if asks_help:
        given = ["--help"]
    else:
        given = arguments(command, folder, refused=way == "a folder that can't be written")
    code: Any = 0
    try:
        cli([*words.split(), *given], prog_name="newsfabric")
    except SystemExit as exc:
        code = exc.code
    except BaseException:
        traceback.print_exc()
        code = 1
    # As Python does when it exits.
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError as exc:
            os.write(2, f"Exception ignored on flushing: {exc}\n".encode())
            code = 120
    return code if isinstance(code, int) else 1


def _stream(number: int, encoding: str) -> io.TextIOWrapper:
    raw = io.FileIO(number, "w", closefd=False)
    return io.TextIOWrapper(io.BufferedWriter(raw), encoding=encoding)


def main(folder: Path) -> None:
    """Play all commands in ``folder``, which also takes their output."""
    import localfabric.cli
    import operations.cli
    from localfabric.world import finding

    # No world starts here: commands needn't wait for one.
    vars(finding)["_MAY_APPEAR"] = 0.0
    for package in (operations.cli, localfabric.cli):
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    os.chdir(folder)
    (folder / "file").write_text("{}")
    topics = Path(__file__).resolve().parents[2] / "topics.toml"
    (folder / "topics.toml").write_text(topics.read_text() + PUBLISHER)
    (folder / "fabric.json").write_text(dump_fabric(FABRIC))
    for words, command in commands():
        for way in WAYS:
            code, output = play(words, command, way, folder)
            sys.stdout.write(json.dumps([words, way, code, output]) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
