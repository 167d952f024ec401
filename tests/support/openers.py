"""Tests that open sockets or start programs, found by the names in their code.

``make unit`` leaves these out. A mark on each of two thousand tests would be forgotten. Names are
followed through the functions, classes and fixtures of tests, never into the product: its functions
that open sockets are among the names.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, Final

import pytest

_TESTS: Final = str(Path(__file__).parents[1])
_NAMES: Final = frozenset([
    "socket", "subprocess", "Popen", "fork", "openpty", "start_server", "open_connection",
    "start_unix_server", "open_unix_connection", "create_server", "create_connection",
    "create_unix_server", "create_subprocess_exec", "create_subprocess_shell", "urlopen",
    "websockets", "HTTPServer", "ThreadingHTTPServer", "HTTPConnection", "HTTPSConnection",
    "AsyncHTTPClient", "bind_sockets",
    # Ours.
    "serving", "opened_box", "listen", "ReaderListener", "TakingServer", "LocalNode", "free_ports",
    "running_box",
])  # fmt: skip
# Fixtures of all tests (tests/conftest.py), which open nothing.
_OF_ALL: Final = "tests"


def opens(item: pytest.Item) -> bool:
    """Return whether ``item`` opens a socket or starts a program, as far as its code shows."""
    info = getattr(item, "_fixtureinfo", None)
    fixtures = [] if info is None else [made[-1] for made in info.name2fixturedefs.values()]
    begun = [made.func for made in fixtures if made.baseid != _OF_ALL]
    function = getattr(item, "function", None)
    return reaches(begun if function is None else [function, *begun])


def reaches(things: Iterable[Any]) -> bool:
    """Return whether one of these functions and classes of tests leads to an opener's name."""
    waiting = [inspect.unwrap(thing) for thing in things]
    seen: set[Any] = set()
    while waiting:
        thing = waiting.pop()
        if thing in seen:
            continue
        seen.add(thing)
        opened, used = _looked_at(thing)
        if opened:
            return True
        waiting += used
    return False


@functools.cache
def _looked_at(thing: Any) -> tuple[bool, list[Any]]:
    """Return whether ``thing`` names an opener, and the tests' own functions that it uses."""
    used: list[Any] = []
    for function in _functions(thing):
        names = {name for code in _codes(function.__code__) for name in code.co_names}
        if names & _NAMES:
            return True, []
        found = [function.__globals__[name] for name in names if name in function.__globals__]
        used += [inspect.unwrap(one) for one in found if _is_of_tests(one)]
    return False, used


def _functions(thing: Any) -> Iterator[FunctionType]:
    if not isinstance(thing, type):
        yield thing
        return
    for base in thing.__mro__:
        if _is_of_tests(base):
            for one in vars(base).values():
                one = inspect.unwrap(getattr(one, "fget", None) or getattr(one, "__func__", one))
                if isinstance(one, FunctionType):
                    yield one


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _is_of_tests(thing: Any) -> bool:
    if not isinstance(thing, type | FunctionType):
        return False
    file = getattr(sys.modules.get(inspect.unwrap(thing).__module__), "__file__", None)
    return file is not None and file.startswith(_TESTS)
