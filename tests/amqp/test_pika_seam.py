"""Undocumented parts of pika are used in one module, name by name, of one version."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import tomllib
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pika
import pytest
from pika.adapters import base_connection
from pika.adapters.asyncio_connection import AsyncioConnection
from pika.adapters.base_connection import _StreamingProtocolShim

ROOT = Path(__file__).parent.parent.parent
SEAM = "newsfabric/amqp/pika_seam.py"

#: All names of pika in the seam, as written there, and the form that each must have.
NAMES = {
    "AsyncioConnection": (
        "(parameters, on_open_callback, on_open_error_callback, on_close_callback,"
        " custom_ioloop, internal_connection_workflow)"
    ),
    "_StreamingProtocolShim": "(conn)",
    "connection.callbacks.add": "(prefix, key, callback, one_shot, only_caller, arguments)",
    "pika.exceptions.ConnectionClosedByBroker": "(reply_code, reply_text)",
    "pika.spec.Connection.Close": "(reply_code, reply_text, class_id, method_id)",
    "self._connection.bytes_received": "0",
    "self._protocol.connection_lost": "(error)",
    "self._protocol.connection_made": "(transport)",
    "self._protocol.data_received": "(data)",
}

WHAT_TO_DO = f"""
pika {pika.__version__} isn't the one that {SEAM} was written for.
To go back: `make setup` installs the version in pyproject.toml.
To take this one:
1. Read what has changed in pika's connection.py, heartbeat.py and adapters/base_connection.py,
   from the version in pyproject.toml to this one, around the names above.
2. Change the seam, and NAMES here, until this file passes.
3. Run tests/amqp and tests/attacks/test_broker.py with a real broker: they try each way in which
   a connection can begin and end.
4. Write the version into both lists of pyproject.toml.
"""


def form(found: Any) -> str:
    """Return the parameters of a callable, else the value."""
    if not callable(found):
        return repr(found)
    return f"({', '.join(inspect.signature(found).parameters)})"


def used(seam: str) -> set[str]:
    """Return the names that ``seam``, a source, uses, written as in NAMES."""
    tree = ast.parse(seam)
    imported = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("pika")
        for alias in node.names
    }
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    dotted = {
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and id(node) not in inner
    }
    of_pika = ("pika.", "connection.", "self._connection.", "self._protocol.")
    return imported | {name for name in dotted if name.startswith(of_pika)}


def test_the_list_has_every_name_that_the_seam_uses() -> None:
    assert used((ROOT / SEAM).read_text(encoding="utf-8")) == set(NAMES)


async def test_each_of_them_is_there_in_the_form_that_is_needed() -> None:
    connection = AsyncioConnection(
        pika.URLParameters("amqp://localhost"),
        custom_ioloop=asyncio.get_running_loop(),
        internal_connection_workflow=False,
    )
    there = SimpleNamespace(
        AsyncioConnection=AsyncioConnection,
        _StreamingProtocolShim=_StreamingProtocolShim,
        pika=pika,
        connection=connection,
        self=SimpleNamespace(_connection=connection, _protocol=_StreamingProtocolShim(connection)),
    )
    found = {}
    for name in NAMES:
        value: Any = there
        for part in name.split("."):
            value = getattr(value, part, None)
        found[name] = form(value)
    assert found == NAMES, WHAT_TO_DO


def test_pika_asks_of_its_transport_what_the_seam_has() -> None:
    """Pika calls these of ``AbstractStreamTransport``; nothing calls its ``get_protocol``."""
    asked = set(re.findall(r"_transport\.(\w+)", inspect.getsource(base_connection)))
    assert asked == {"write", "abort"}, WHAT_TO_DO


def test_one_version_of_pika_is_allowed_and_installed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    lists = (project["project"]["dependencies"], project["dependency-groups"]["loadtest"])
    asked = [need for needs in lists for need in needs if need.startswith("pika")]
    assert asked == [f"pika=={version('pika')}"] * 2, WHAT_TO_DO


def private_names_of_pika() -> frozenset[str]:
    sources = Path(pika.__file__).parent.rglob("*.py")
    text = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    return frozenset(re.findall(r"\b_[a-z]\w+", text))


PRIVATE = private_names_of_pika()


def breaches(source: str) -> list[str]:
    """Return the uses of pika in ``source`` that only the seam may have."""
    tree = ast.parse(source)
    of_pika = _from_pika(tree)
    return [breach for node in ast.walk(tree) for breach in _breaches(node, of_pika)]


def _from_pika(tree: ast.Module) -> set[str]:
    """Return the names in ``tree`` that are pika's."""
    return {"pika"} | {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("pika")
        for alias in node.names
    }


def _breaches(node: ast.AST, of_pika: set[str]) -> Iterator[str]:
    match node:
        case ast.ImportFrom(module=str(module)) if module.startswith("pika"):
            names = [*module.split("."), *(alias.name for alias in node.names)]
            yield from (f"imports {name}" for name in names if name.startswith("_"))
        case ast.Import():
            parts = [part for alias in node.names for part in alias.name.split(".")]
            if parts[0] == "pika":
                yield from (f"imports {part}" for part in parts if part.startswith("_"))
        case ast.ClassDef():
            bases = {ast.unparse(base).split(".")[0] for base in node.bases}
            if bases & of_pika:
                yield f"{node.name} is a subclass: its names could meet pika's"
        case ast.Attribute(value=ast.Name(id="self" | "cls")):
            pass
        case ast.Attribute(attr=name) if name in PRIVATE:
            yield f"uses {name}"
        case ast.Call(func=ast.Name(id="getattr" | "setattr"), args=[_, ast.Constant(value), *_]):
            if value in PRIVATE:
                yield f"uses {value}"


def test_only_the_seam_uses_private_names_of_pika() -> None:
    sources = {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
        for path in (ROOT / "newsfabric/amqp").rglob("*.py")
    }
    seam = sources.pop(SEAM)
    found = {path: breaches(source) for path, source in sources.items()}
    assert {path: those for path, those in found.items() if those} == {}, (
        f"Find a documented way, or add it to {SEAM} and to NAMES here."
    )
    assert breaches(seam) == ["imports _StreamingProtocolShim"]


@pytest.mark.parametrize(
    "source",
    [
        "from pika.connection import _something",
        "from pika._module import Thing",
        "import pika._module",
        "class Ours(pika.URLParameters): ...",
        "from pika import SelectConnection as Theirs\nclass Ours(Theirs): ...",
        "connection._process_frame(frame)",
        "self._connection._channels[1]",
        "getattr(connection, '_terminate_stream')(None)",
    ],
)
def test_a_breach_is_found(source: str) -> None:
    assert len(breaches(source)) == 1


@pytest.mark.parametrize(
    "source",
    [
        "import pika.exceptions",
        "class Ours(asyncio.Protocol): ...",
        "self._channels = {}",
        "other._a_name_that_pika_does_not_have",
    ],
)
def test_what_is_allowed_is_no_breach(source: str) -> None:
    assert breaches(source) == []
