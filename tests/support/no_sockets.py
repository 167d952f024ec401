"""The guard of ``make unit``: a test that opens a socket or starts a program fails.

It is on with ``--no-sockets``. Python reports its own sockets and programs to audit hooks; those of
uvloop begin in C, so its methods report them here. Pairs of connected sockets are allowed: each
event loop has one.
"""

from __future__ import annotations

import functools
import sys
import traceback
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, Final

import pytest
import uvloop

_TESTS: Final = str(Path(__file__).parents[1])
_OF_UVLOOP: Final = (
    "create_connection", "create_unix_connection", "subprocess_exec", "subprocess_shell",
)  # fmt: skip
_EVENTS: Final = frozenset([
    "socket.bind", "socket.connect", "socket.sendto", "subprocess.Popen", "os.system", "os.exec",
    "os.fork", "os.forkpty", "os.posix_spawn",
    *_OF_UVLOOP,
])  # fmt: skip


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--no-sockets", action="store_true", help="fail a test that opens a socket")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("no_sockets"):
        config.pluginmanager.register(Guard())


class Guard:
    """A plugin that notes the sockets and programs of the running test."""

    def __init__(self) -> None:
        self._opened: list[str] = []
        sys.addaudithook(self._note)
        for name in _OF_UVLOOP:
            setattr(uvloop.Loop, name, _reported(name, getattr(uvloop.Loop, name)))

    def _note(self, event: str, args: tuple[Any, ...]) -> None:
        if event in _EVENTS:
            files = [f"{each.filename}:{each.lineno}" for each in traceback.extract_stack()]
            ours = [place for place in files if place.startswith(_TESTS) and __file__ not in place]
            self._opened.append(" at ".join([event, *ours[-1:]]))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        self._opened.clear()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self) -> Generator[None, object, object]:
        result = yield
        if self._opened:
            opened = "\n".join(dict.fromkeys(self._opened))
            pytest.fail(f"lacks the mark `sockets`:\n{opened}", pytrace=False)
        return result


def _reported(name: str, opens: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(opens)
    def reporting(*args: Any, **named: Any) -> Any:
        if named.get("sock") is None:
            sys.audit(name)
        return opens(*args, **named)

    return reporting
