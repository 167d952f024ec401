"""The SockJS suite against our gateway, and against sockjs-node for comparison."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from dialogue import Dialogue, SuiteServer
from gateways import ENGINES
from installed import installed
from sockjs_cases import CASES, Case
from sockjs_differences import DIFFERENCES, Difference, Found, differences
from sockjs_peers import native_peer, sockjs_node_peer, tornado_peer

from newsfabric.errors import SetupError

PEERS = {"tornado": tornado_peer, "native": native_peer}
# The data plane's echo never closes a connection by itself; the behaviour suite tests the close.
NOT_NATIVE = {"a_close_ends_a_websocket", "a_close_ends_a_raw_websocket"}


def cases_of(engine: str) -> list[Case]:
    return [case for case in CASES if not (engine == "native" and case.name in NOT_NATIVE)]


RUNS = [
    pytest.param(engine, case, id=f"{engine}-{case.name}")
    for engine in ENGINES
    for case in cases_of(engine)
]


@pytest.fixture
async def gateway(engine: str) -> AsyncIterator[SuiteServer]:
    async with PEERS[engine]() as peer:
        yield peer


@pytest.fixture(scope="session")
def installed_node() -> Path:
    """Return the folder of sockjs-node; without it skip on a laptop, fail in CI."""
    try:
        return installed("sockjs_node")
    except SetupError as exc:
        if os.environ.get("CI"):
            pytest.fail(f"CI must have sockjs-node: {exc}")
        pytest.skip(str(exc))


@pytest.mark.parametrize(("engine", "case"), RUNS)
async def test_our_gateway_keeps_the_protocol(gateway: SuiteServer, case: Case) -> None:
    await case.hold(Dialogue(gateway, case.endpoint))


@pytest.mark.parametrize("engine", ENGINES)
async def test_it_differs_from_sockjs_node_only_where_we_say_so(
    engine: str, gateway: SuiteServer, installed_node: Path
) -> None:
    explained: set[Difference] = set()
    unexplained: list[Found] = []
    async with sockjs_node_peer(installed_node) as sockjs_node:
        for case in cases_of(engine):
            ours, theirs = (Dialogue(peer, case.endpoint) for peer in (gateway, sockjs_node))
            await asyncio.gather(case.hold(ours), case.hold(theirs))
            for found in differences(case.name, ours.notes, theirs.notes):
                reasons = {difference for difference in DIFFERENCES if difference.explains(found)}
                explained |= reasons
                if not reasons:
                    unexplained.append(found)
    assert unexplained == []
    missed = [d for d in DIFFERENCES if d not in explained and d.case not in NOT_NATIVE]
    assert missed == [], "they don't differ there any more: take the line out"


def test_what_differs_is_found_and_explained_field_by_field() -> None:
    ours = {("01 GET /", "status"): "200", ("01 GET /", "vary"): "Origin"}
    theirs = {("01 GET /", "status"): "404"}
    status, vary = differences("greeting", ours, theirs)
    assert (status.ours, status.theirs) == ("200", "404")
    assert (vary.field, vary.theirs) == ("vary", "(absent)")
    allowed = Difference(case="greet*", field="status", ours="200", why="a test")
    assert allowed.explains(status)
    assert not allowed.explains(vary)


def test_the_lock_of_sockjs_node_names_no_registry() -> None:
    lock = (Path(__file__).with_name("sockjs-node") / "package-lock.json").read_text()
    assert '"resolved"' not in lock
    assert '"integrity"' in lock
