"""Attacks from a machine that was broken into on the operator who looks at it."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from newsfabric.errors import WorldError
from operations.hosts.described import Host
from operations.hosts.remote import HostReport, run_here, seen

pytestmark = pytest.mark.sockets

BOX = Host("oregon-retail-1", "oregon", "retail")
CLEAR = "\x1b[2J"
UNIT = {"unit": "newsfabric-gateway", "active": "active", "pid": 7, "stopped": False}


def hosts_document(**changes: Any) -> dict[str, Any]:
    return {"units": [UNIT]} | changes


def test_what_has_no_end_is_ended_before_it_fills_the_memory() -> None:
    for where in ("stdout", "stderr"):
        program = f"import sys\nwhile True: sys.{where}.write('x' * 65536)"
        with pytest.raises(WorldError, match="output exceeds 1048576 bytes"):
            run_here([sys.executable, "-c", program], seconds=60)


def test_what_never_says_anything_is_ended_in_time() -> None:
    with pytest.raises(WorldError, match=r"not done within 0\.2 s"):
        run_here(["sleep", "600"], seconds=0.2)


def test_what_does_not_listen_is_still_heard() -> None:
    assert run_here(["echo", "well"], given=b"x" * 1_000_000) == b"well\n"


def test_an_error_does_not_rule_the_terminal() -> None:
    with pytest.raises(WorldError) as raised:
        run_here(["sh", "-c", "printf '\\033[2Jgone' >&2; exit 3"])
    assert str(raised.value).endswith("exit code 3: ?[2Jgone")


@pytest.mark.parametrize(
    "value",
    [
        [],
        hosts_document(units=[UNIT] * 101),
        hosts_document(units=None),
        hosts_document(units=[UNIT | {"unit": f"router{CLEAR}"}]),
        hosts_document(units=[UNIT | {"unit": 7}]),
        hosts_document(units=[UNIT | {"pid": "x"}]),
    ],
)
def test_a_host_that_says_nonsense_is_as_one_that_is_not_reached(value: Any) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        seen(BOX, value)


def test_of_a_gateways_answers_only_plain_values_are_kept() -> None:
    load = {
        "connections": 7,
        "ready": True,
        "sockjs_url": "http://10.1.1.41:8080/sockjs",
        "websocket_url": f"http://a/{CLEAR}",
        "sse_url": "x" * 301,
        "more": {"a": 1},
    }
    found = seen(BOX, hosts_document(load=load, engine=["native"]))
    assert isinstance(found, HostReport)
    assert found.load == {
        "connections": 7,
        "ready": True,
        "sockjs_url": "http://10.1.1.41:8080/sockjs",
    }
    assert found.engine == {}
