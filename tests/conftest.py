"""What every test lives by, and a real RabbitMQ node for those that ask for one.

- Async tests run on uvloop, as the services do.
- A log record at ERROR or above fails the test, unless it asked for ``expect_error_log``.
- A task or thread that a test leaves behind fails it, and so does a limit, a folder or the like
  that it changes. What a failed one has open is closed before the next (tests/support/leavings.py).
- A property is about values: how long one takes is up to the machine.
- What tests have started is ended with pytest, also when it is killed (tests/support/reaper.py).
- Tests run side by side, in any order of files (tests/support/spreading.py).
"""

from __future__ import annotations

import asyncio
import dataclasses
import faulthandler
import logging
import os
import re
import secrets
import signal
import sys
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import uvloop
from _pytest.faulthandler import fault_handler_stderr_fd_key
from hypothesis import HealthCheck, settings
from leavings import LAST, Before, certificates_forgotten, forget_failure
from left_connections import close_connections_of_runners
from power_cuts import lacking
from reaper import watch
from shared import after_the_first, folder_of_run, once_per_run
from spreading import ByGroupOrFile, spread, workers

from localfabric.nodes.cassandra import LocalCassandra
from localfabric.nodes.rabbitmq import LocalNode
from localfabric.world.cassandra_home import CassandraHome, find_cassandra
from localfabric.world.rabbitmq_home import RabbitmqHome, find_rabbitmq
from newsfabric.errors import SetupError
from newsfabric.settings import Node

ROOT = Path(__file__).resolve().parents[1]

# Tasks that a cancelled server or a closing socket still needs a few turns for.
GRACE_SECONDS = 0.5
# For clearing away what a test has left, a world of two regions too.
TEARDOWN_SECONDS = 240.0

pytest_plugins = ("standing_worlds",)

settings.register_profile(
    "newsfabric",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    # In CI the same examples each time, so that only a change can fail it; at home new ones.
    derandomize="CI" in os.environ,
)
settings.load_profile("newsfabric")

close_connections_of_runners()

_loops: list[asyncio.AbstractEventLoop] = []


def _new_loop() -> asyncio.AbstractEventLoop:
    loop = uvloop.new_event_loop()
    _loops.append(loop)
    return loop


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": _new_loop}


def pytest_configure(config: pytest.Config) -> None:
    # Who wants no bytecode would have it made anew by each worker, and by hundreds of interpreters
    # that tests start: half of the time until the first test begins.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    if hasattr(config, "workerinput"):
        # One of several: its mark is that of the process which started it.
        return
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell that starts pytest by `&` has it ignore Ctrl-C, and all that tests start, too.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    reaper = watch(f"{os.getpid()}-{secrets.token_hex(8)}")

    def done() -> None:
        reaper.communicate()

    config.add_cleanup(done)


def pytest_xdist_auto_num_workers() -> int:
    return workers()


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByGroupOrFile:
    return ByGroupOrFile(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """In a new clone the first worker compiles all tests, and the others find them compiled."""
    factory: pytest.TempPathFactory = session.config._tmp_path_factory  # type: ignore[attr-defined]
    with after_the_first(folder_of_run(factory) / "collection.lock"):
        return (yield)


# First: what it marks may be deselected.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item], config: pytest.Config) -> None:
    spread(items, config)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """Ends the process, with every thread's stack, if what a test leaves can't be cleared away.

    pytest-timeout strikes once for each test. If a test failed so, and a loop doesn't close because
    of what it left, nothing ends the run: CI took 5,400 s for that (uvloop waits for each handle).
    """
    # Where nothing is captured.
    to = item.config.stash[fault_handler_stderr_fd_key]
    faulthandler.dump_traceback_later(TEARDOWN_SECONDS, exit=True, file=to)
    try:
        result = yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        before = item.stash.get(BEFORE, None)
        # Its loop is closed by now, and with it the threads of that.
        left = [] if before is None else before.differences()
    if left:
        pytest.fail("left to the next test:\n" + "\n".join(left), pytrace=False)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, object, object]:
    result = yield
    if any(hasattr(sys, name) for name in LAST):
        forget_failure()
    return result


BEFORE = pytest.StashKey[Before]()


@pytest.fixture(autouse=True)
def process_as_it_was(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails a test that leaves its process changed (``pytest_runtest_teardown``)."""
    item: pytest.Item = request.node
    item.stash[BEFORE] = Before.now()
    with certificates_forgotten():
        yield


@pytest.fixture(autouse=True)
def no_task_left() -> Iterator[None]:
    """Fails a test whose loop still has tasks when all its fixtures are done."""
    _loops.clear()
    yield
    opened = [loop for loop in _loops if not loop.is_closed()]
    left = [str(task) for loop in opened for task in _unfinished(loop)]
    if left:
        pytest.fail("un-awaited tasks:\n" + "\n".join(left))


def _unfinished(loop: asyncio.AbstractEventLoop) -> set[asyncio.Task[object]]:
    tasks = asyncio.all_tasks(loop)
    if tasks:
        _, tasks = loop.run_until_complete(asyncio.wait(tasks, timeout=GRACE_SECONDS))
    return tasks


@dataclasses.dataclass
class ErrorLog:
    """Records at ERROR or above that the test saw, and those that it may see."""

    records: list[logging.LogRecord] = dataclasses.field(default_factory=list)
    expected: list[re.Pattern[str]] = dataclasses.field(default_factory=list)

    def __call__(self, pattern: str) -> None:
        """A record whose message matches ``pattern`` is expected, at least once."""
        self.expected.append(re.compile(pattern))

    def unexpected(self) -> list[str]:
        messages = [record.getMessage() for record in self.records]
        return [m for m in messages if not any(e.search(m) for e in self.expected)]

    def missing(self) -> list[str]:
        messages = [record.getMessage() for record in self.records]
        return [e.pattern for e in self.expected if not any(e.search(m) for m in messages)]


class _Recorder(logging.Handler):
    def __init__(self, log: ErrorLog) -> None:
        super().__init__(logging.ERROR)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        self._log.records.append(record)


@pytest.fixture(autouse=True)
def expect_error_log() -> Iterator[ErrorLog]:
    """Call it with a pattern for each record at ERROR or above that the test provokes."""
    log = ErrorLog()
    recorder = _Recorder(log)
    logging.getLogger().addHandler(recorder)
    yield log
    logging.getLogger().removeHandler(recorder)
    assert log.unexpected() == [], "logged at ERROR without being expected"
    assert log.missing() == [], "expected at ERROR, but never logged"


@pytest.fixture(scope="session")
def rabbitmq_home() -> RabbitmqHome:
    """The RabbitMQ of this machine; skips without one on a laptop, fails in CI."""
    try:
        return find_rabbitmq(ROOT, os.environ)
    except SetupError as exc:
        if os.environ.get("CI"):
            pytest.fail(f"CI must have RabbitMQ: {exc}")
        pytest.skip(str(exc))


@pytest.fixture(scope="session")
def rabbitmq(rabbitmq_home: RabbitmqHome, tmp_path_factory: pytest.TempPathFactory) -> Node:
    """One node for all workers: use names of your own (uuid), change nothing that others meet."""

    def start(folder: Path) -> dict[str, str]:
        node = LocalNode(folder, rabbitmq_home)
        node.start()
        # It is ended with the whole run (pytest_configure), whichever worker is done first.
        node.let_go()
        return {
            "name": node.broker.name,
            "amqp_url": node.amqp_url,
            "management_url": node.management_url,
        }

    return Node(**once_per_run(tmp_path_factory, "rabbitmq", start))


@pytest.fixture
def rabbitmq_factory(
    rabbitmq_home: RabbitmqHome, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[], LocalNode]]:
    """Makes nodes (not started yet) for tests that kill them; all are gone afterwards."""
    nodes: list[LocalNode] = []

    def make() -> LocalNode:
        nodes.append(LocalNode(tmp_path_factory.mktemp("rabbitmq"), rabbitmq_home))
        return nodes[-1]

    yield make
    for node in nodes:
        node.kill()


@pytest.fixture(scope="session")
def cassandra_home() -> CassandraHome:
    """The Cassandra of this machine; skips without it or Java on a laptop, fails in CI."""
    try:
        return find_cassandra(ROOT, os.environ)
    except SetupError as exc:
        if os.environ.get("CI"):
            pytest.fail(f"CI must have Cassandra: {exc}")
        pytest.skip(str(exc))


@pytest.fixture(scope="session")
def cassandra(
    cassandra_home: CassandraHome, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalCassandra]:
    """One node for all tests, which run on one worker: empty its keyspace, or use another."""
    with LocalCassandra(tmp_path_factory.mktemp("cassandra"), cassandra_home) as node:
        yield node


@pytest.fixture(scope="session")
def power_cuts() -> None:
    """Disks whose power can be cut; skips without FUSE on a laptop, fails in CI.

    No set-up makes /dev/fuse, which is the kernel's: without it they skip anywhere.
    """
    missing = lacking()
    if missing is not None and os.environ.get("CI") and os.path.exists("/dev/fuse"):
        pytest.fail(f"CI must have {missing}")
    if missing is not None:
        pytest.skip(f"needs {missing}")
