"""Tests that open sockets or start programs, found by the names in their code.

``make unit`` leaves these out; it fails those that aren't found (tests/support/no_sockets.py). A
mark on each of two thousand tests would be forgotten. Names are followed through the functions,
classes and fixtures of tests, never into the product: its functions that open sockets are among
the names.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Iterable
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
    waiting, seen = [inspect.unwrap(thing) for thing in things], set()
    while waiting:
        thing = waiting.pop()
        if thing not in seen:
            seen.add(thing)
            is_opener, used = _followed(thing)
            if is_opener:
                return True
            waiting += used
    return False


@functools.cache
def _followed(thing: Any) -> tuple[bool, list[Any]]:
    """Return whether ``thing`` names an opener, and the functions and classes that it uses."""
    if isinstance(thing, type):
        return False, _of_tests([*vars(thing).values(), *thing.__bases__])
    names = _names(thing.__code__)
    return bool(names & _NAMES), _of_tests(map(thing.__globals__.get, names))


def _names(code: CodeType) -> frozenset[str]:
    within = [_names(each) for each in code.co_consts if isinstance(each, CodeType)]
    return frozenset(code.co_names).union(*within)


def _of_tests(things: Iterable[Any]) -> list[Any]:
    """Return the functions and classes among ``things`` that are defined by tests."""
    found = [thing.fget if isinstance(thing, property) else thing for thing in things]
    wrappers = FunctionType | classmethod | staticmethod
    found = [inspect.unwrap(each) if isinstance(each, wrappers) else each for each in found]
    return [each for each in found if isinstance(each, type | FunctionType) and _is_here(each)]


def _is_here(thing: Any) -> bool:
    module = sys.modules.get(thing.__module__)
    return str(getattr(module, "__file__", None)).startswith(_TESTS)
