"""clients/js in a real browser: gateways and regions break under it, tabs share, a device sleeps.

Messages are numbered and published in the region that stays, so what a page got says what it
missed. How long a page was cut off is in the report that ``--junitxml`` writes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Final
from urllib.request import Request, urlopen

import pytest
from chromium import launched
from playwright.sync_api import Browser, BrowserContext, Page
from worlds import World, require_rabbitmq

pytestmark = [pytest.mark.world, pytest.mark.browser, pytest.mark.timeout(600)]

PORT_BASE: Final = 23000
STAYS: Final = "dublin"
BREAKS: Final = "oregon"
# What was promised, from the moment of the break until the page has the next message.
GATEWAY_SECONDS: Final = 3.0
REGION_SECONDS: Final = 8.0

FOLLOW: Final = """
([topic, options]) => {
  const log = {got: [], states: [], gaps: 0, refused: []};
  const fabric = newsfabric.connect({endpoints: "/endpoints.json", ...options});
  fabric.on("state", (state) => log.states.push({...state, at: Date.now()}));
  fabric.subscribe(topic, {
    rewind: options.rewind,
    onMessage: ({body}) => log.got.push({n: body.n, at: Date.now()}),
    onGap: () => { log.gaps += 1; },
    onError: (error) => log.refused.push(error.code),
  });
  Object.assign(window, {fabric, log});
}
"""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Two regions with two boxes each, for this file alone: it breaks them."""
    require_rabbitmq()
    world = World(tmp_path_factory.mktemp("javascript") / "world")
    up = world.run(
        *("up", "--detach", "--retail", "2", "--port-base", str(PORT_BASE)),
        *("--timeout", "240"),
        timeout=300,
    )
    assert up.returncode == 0, f"{up.stdout}\n{up.stderr}"
    yield world
    world.run("down")
    assert world.pids() == set()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with launched() as browser:
        yield browser


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    """Like a browser of its own: no storage, no tabs."""
    context = browser.new_context()
    yield context
    context.close()


@pytest.fixture
def healed(world: World) -> Iterator[World]:
    """The world; what the test broke in it is mended afterwards, before another one begins."""
    yield world
    assert world.run("chaos", "heal", timeout=120).returncode == 0
    for region in world.status()["regions"]:
        _eventually(lambda url=region["endpoints_url"]: _gateways(url) == 2, "both boxes are back")


@dataclasses.dataclass
class Press:
    """Publishes numbered messages on a topic of its own, ten a second, until told to stop."""

    url: str
    topic: str = dataclasses.field(default_factory=lambda: f"news.js-{uuid.uuid4()}")
    published: int = 0
    _stop: threading.Event = dataclasses.field(default_factory=threading.Event)

    def publish(self) -> None:
        body = json.dumps({"topic": self.topic, "body": {"n": self.published}}).encode()
        headers = {"Content-Type": "application/json"}
        with urlopen(Request(self.url, body, headers), timeout=20) as answer:
            assert answer.status == 201
        self.published += 1

    def run(self) -> None:
        while not self._stop.wait(0.1):
            self.publish()

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        thread = threading.Thread(target=self.run)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()


@pytest.fixture
def press(world: World) -> Press:
    return Press(f"{world.region(STAYS)['frontdesk_url']}/publish")


def _open(context: BrowserContext, world: World, topic: str, **options: Any) -> Page:
    page = context.new_page()
    frontdesk = world.region(BREAKS)["frontdesk_url"]
    # Any document of that origin will do. Chromium lets none that a test makes up read from here.
    page.goto(f"{frontdesk}/healthz/live")
    page.add_script_tag(url=f"{frontdesk}/static/newsfabric.js")
    page.evaluate(FOLLOW, [topic, options])
    page.wait_for_function("fabric.state.state === 'open'", timeout=30_000)
    return page


def _has(page: Page, count: int, seconds: float = 20) -> None:
    page.wait_for_function("(n) => log.got.length >= n", arg=count, timeout=seconds * 1000)


def _numbers(page: Page) -> list[int]:
    numbers: list[int] = page.evaluate("log.got.map(({n}) => n)")
    return numbers


def _has_exactly(page: Page, press: Press) -> None:
    """Everything that was published, each once, nothing doubtful."""
    _has(page, press.published)
    assert sorted(_numbers(page)) == list(range(press.published))
    assert page.evaluate("log.gaps") == 0


def _gateways(url: str) -> int:
    try:
        with urlopen(url, timeout=5) as response:
            return len(json.load(response)["gateways"])
    except OSError:
        return 0


def _eventually(check: Callable[[], bool], what: str, seconds: float = 90) -> None:
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.2)


def _gateway_pids(world: World, page: Page) -> list[int]:
    """The processes of the gateway that ``page`` reads from."""
    url = page.evaluate("fabric.state.gateway")
    (gateway,) = [g for g in world.region(BREAKS)["gateways"] if g["websocket_url"] == url]
    return [pid for pid in (gateway["pid"], gateway["dataplane_pid"]) if pid]


def _what_readers_meet(world: World) -> list[int]:
    """The processes of the region that any reader ever speaks with."""
    region = world.region(BREAKS)
    gateways = [pid for g in region["gateways"] for pid in (g["pid"], g["dataplane_pid"])]
    frontdesks = [s["pid"] for s in region["services"] if "frontdesk" in s["name"]]
    return [pid for pid in gateways + frontdesks if pid]


def _break(pids: list[int], how: signal.Signals) -> float:
    """When, in ms as pages count them."""
    for pid in pids:
        os.kill(pid, how)
    return time.time() * 1000


def _back_after(page: Page, broken: float) -> float:
    """Seconds from ``broken`` until the page had the first message over its next connection."""
    found: float = page.evaluate(
        """(broken) => {
          const open = log.states.find(({state, at}) => state === "open" && at > broken);
          return (log.got.find(({at}) => at >= open.at).at - broken) / 1000;
        }""",
        broken,
    )
    return found


def _reopened(page: Page, broken: float) -> None:
    page.wait_for_function(
        """(broken) => {
          const open = log.states.find(({state, at}) => state === "open" && at > broken);
          return open && log.got.some(({at}) => at >= open.at);
        }""",
        arg=broken,
        timeout=30_000,
    )


def test_a_gateway_is_killed_under_the_page(
    healed: World,
    context: BrowserContext,
    press: Press,
    record_property: Callable[[str, object], None],
) -> None:
    page = _open(context, healed, press.topic)
    with press.running():
        _has(page, 5)
        broken = _break(_gateway_pids(healed, page), signal.SIGKILL)
        _reopened(page, broken)
    _has_exactly(page, press)
    seconds = _back_after(page, broken)
    record_property("failover_seconds", round(seconds, 2))
    assert seconds <= GATEWAY_SECONDS
    assert page.evaluate("fabric.state.region") == BREAKS, "there is another gateway at home"


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "cut"])
def test_a_region_is_gone_under_the_page(
    healed: World,
    context: BrowserContext,
    press: Press,
    how: signal.Signals,
    record_property: Callable[[str, object], None],
) -> None:
    """Stopped processes are as silent as a cut network: nothing is refused, nothing answered."""
    page = _open(context, healed, press.topic)
    with press.running():
        _has(page, 5)
        broken = _break(_what_readers_meet(healed), how)
        _reopened(page, broken)
    _has_exactly(page, press)
    seconds = _back_after(page, broken)
    record_property("failover_seconds", round(seconds, 2))
    assert seconds <= REGION_SECONDS
    assert page.evaluate("fabric.state.region") == STAYS


def test_tabs_share_one_connection_and_hand_it_on(
    world: World, context: BrowserContext, press: Press
) -> None:
    sockets: list[str] = []
    context.on("page", lambda page: page.on("websocket", lambda ws: sockets.append(ws.url)))
    first = _open(context, world, press.topic)
    others = [_open(context, world, press.topic) for _ in range(2)]
    assert len(sockets) == 1
    roles = [page.evaluate("fabric.state.tab") for page in (first, *others)]
    assert roles == ["leader", "follower", "follower"]
    with press.running():
        for page in (first, *others):
            _has(page, 5)
        first.close()
        others[0].wait_for_function("fabric.state.tab === 'leader'")
        known = others[1].evaluate("log.got.length")
        _has(others[1], known + 10)
    for page in others:
        _has_exactly(page, press)
    assert len(sockets) == 2


def test_a_tab_that_comes_late_gets_what_it_asks_for_and_nobody_else_does(
    world: World, context: BrowserContext, press: Press
) -> None:
    for _ in range(5):
        press.publish()
    first = _open(context, world, press.topic)
    press.publish()
    _has(first, 1)
    second = _open(context, world, press.topic, rewind=3)
    _has(second, 3)
    press.publish()
    _has(first, 2)
    _has(second, 4)
    assert _numbers(first) == [5, 6]
    assert _numbers(second) == [3, 4, 5, 6]


def test_a_leader_that_the_browser_froze_is_replaced(
    world: World, context: BrowserContext, press: Press
) -> None:
    leader = _open(context, world, press.topic)
    follower = _open(context, world, press.topic)
    devtools = context.new_cdp_session(leader)
    devtools.send("Page.setWebLifecycleState", {"state": "frozen"})
    with press.running():
        follower.wait_for_function("fabric.state.tab === 'leader'", timeout=20_000)
        _has(follower, 10)
        devtools.send("Page.setWebLifecycleState", {"state": "active"})
        leader.wait_for_function("fabric.state.tab === 'follower'", timeout=20_000)
    for page in (leader, follower):
        _has_exactly(page, press)


def test_a_page_that_was_offline_is_back_as_soon_as_the_network_is(
    healed: World, context: BrowserContext, press: Press
) -> None:
    page = _open(context, healed, press.topic)
    press.publish()
    _has(page, 1)
    context.set_offline(True)
    _break(_gateway_pids(healed, page), signal.SIGKILL)
    # Long enough for its waits to grow beyond what the next lines allow.
    page.wait_for_function("fabric.state.wait > 4000", timeout=120_000)
    press.publish()
    context.set_offline(False)
    page.wait_for_function("fabric.state.state === 'open'", timeout=3000)
    _has_exactly(page, press)


def test_where_something_forbids_websocket_the_page_reads_over_http(
    world: World, context: BrowserContext, press: Press
) -> None:
    context.add_init_script(
        """window.WebSocket = class {
          constructor() { setTimeout(() => this.onclose({code: 1006, reason: ""}), 10); }
          close() {}
        };"""
    )
    page = _open(context, world, press.topic)
    assert page.evaluate("fabric.state.transport") == "xhr-streaming"
    press.publish()
    _has_exactly(page, press)


def test_a_page_that_closes_its_connection_hears_no_more(
    world: World, context: BrowserContext, press: Press
) -> None:
    page = _open(context, world, press.topic)
    press.publish()
    _has(page, 1)
    page.evaluate("fabric.close()")
    assert page.evaluate("fabric.state.state") == "stopped"
    press.publish()
    other = _open(context, world, press.topic, rewind=2)
    _has(other, 2)
    assert _numbers(page) == [0]
