"""Tests that open sockets are found: see tests/support/openers.py."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from openers import reaches


def starts() -> None:
    subprocess.run(["true"], check=True)


class Started:
    def __init__(self) -> None:
        starts()


class Child(Started):
    pass


def calls_itself(times: int) -> int:
    return times and calls_itself(times - 1)


@pytest.fixture
def started() -> Started:
    return Child()


@pytest.mark.parametrize("leading", [starts, Started, Child, lambda: [Child() for _ in range(2)]])
def test_a_name_is_found_behind_functions_and_classes(leading: Callable[[], Any]) -> None:
    assert reaches([leading])


def test_what_names_no_opener_opens_nothing() -> None:
    assert not reaches([calls_itself])


def test_a_test_is_marked_for_its_fixtures(request: pytest.FixtureRequest, started: object) -> None:
    assert request.node.get_closest_marker("sockets") is not None


def test_a_test_without_them_is_not(request: pytest.FixtureRequest) -> None:
    assert request.node.get_closest_marker("sockets") is None
