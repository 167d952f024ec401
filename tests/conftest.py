"""Rules for every test, and a real RabbitMQ or Cassandra node for the tests that request it.

- Async tests run on uvloop, as the services do.
- A log record at ERROR or above fails the test, unless it called ``expect_error_log``.
- A task or thread that a test leaves running fails it, and so does a changed limit, folder or the
  like. A failed test's open objects are closed before the next test (tests/support/leavings.py).
- A property test has no deadline: the time that an example takes depends on the machine.
- With ``--no-sockets`` a test that opens a socket fails (tests/support/no_sockets.py).
- Processes of tests end with pytest, also when it is killed (tests/support/reaper.py).
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
from openers import opens
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

# Seconds: tasks of a cancelled server or a closing socket still need a few turns of the loop.
GRACE_SECONDS = 0.5
# Seconds for clearing away all that a test has left, even a world of two regions.
TEARDOWN_SECONDS = 240.0

pytest_plugins = ("budgets", "no_sockets", "standing_worlds")

settings.register_profile(
    "newsfabric",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    # In CI the same examples each time, so that only a change can fail it; elsewhere new ones.
    derandomize="CI" in os.environ,
)
# For `make unit`; CI tries all examples.
settings.register_profile("unit", settings.get_profile("newsfabric"), max_examples=20)
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
    # Without cached bytecode, each worker compiles all code again, and so do hundreds of
    # interpreters that tests start: half of the time until the first test begins.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    if hasattr(config, "workerinput"):
        # A worker of several: it has the mark of the process that started it.
        return
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell that starts pytest with `&` makes it, and all that tests start, ignore Ctrl-C.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    reaper = watch(f"{os.getpid()}-{secrets.token_hex(8)}")

    def done() -> None:
        reaper.communicate()

    config.add_cleanup(done)


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    return workers(waits=not config.getoption("no_sockets"))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByGroupOrFile:
    return ByGroupOrFile(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Let the first worker compile all tests of a new clone; the others find them compiled.

    Workers that have a core each don't wait: they compile in the same time.
    """
    if int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")) <= (os.cpu_count() or 1):
        return (yield)
    factory: pytest.TempPathFactory = session.config._tmp_path_factory  # type: ignore[attr-defined]
    with after_the_first(folder_of_run(factory) / "collection.lock"):
        return (yield)


# First, because tests with the marks set here may be deselected.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item], config: pytest.Config) -> None:
    for item in items:
        if opens(item):
            item.add_marker(pytest.mark.sockets)
    spread(items, config)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """End the process with every thread's stack if the state left by a test can't be cleared away.

    pytest-timeout acts only once for each test. If a test times out and its loop then can't close,
    nothing ends the run: that took 5,400 s in CI (uvloop waits for each handle).
    """
    # This stream isn't captured.
    to = item.config.stash[fault_handler_stderr_fd_key]
    faulthandler.dump_traceback_later(TEARDOWN_SECONDS, exit=True, file=to)
    try:
        result = yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        before = item.stash.get(BEFORE, None)
        # By now the test's loop is closed, and its threads have ended.
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
    """Fail a test that leaves its process changed (``pytest_runtest_teardown``)."""
    item: pytest.Item = request.node
    item.stash[BEFORE] = Before.now()
    with certificates_forgotten():
        yield


@pytest.fixture(autouse=True)
def no_task_left() -> Iterator[None]:
    """Fail a test whose loop still has tasks when all its fixtures are done."""
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
    """Log records at ERROR or above of a test, and the patterns that it expects."""

    records: list[logging.LogRecord] = dataclasses.field(default_factory=list)
    expected: list[re.Pattern[str]] = dataclasses.field(default_factory=list)

    def __call__(self, pattern: str) -> None:
        """Expect at least one record whose message matches ``pattern``."""
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
    """Yield an :class:`ErrorLog`: call it with a pattern for each error that the test provokes."""
    log = ErrorLog()
    recorder = _Recorder(log)
    logging.getLogger().addHandler(recorder)
    yield log
    logging.getLogger().removeHandler(recorder)
    assert log.unexpected() == [], "logged at ERROR without being expected"
    assert log.missing() == [], "expected at ERROR, but never logged"


@pytest.fixture(scope="session")
def rabbitmq_home() -> RabbitmqHome:
    """Return this machine's RabbitMQ; without one, skip on a laptop and fail in CI."""
    try:
        return find_rabbitmq(ROOT, os.environ)
    except SetupError as exc:
        if os.environ.get("CI"):
            pytest.fail(f"CI must have RabbitMQ: {exc}")
        pytest.skip(str(exc))


@pytest.fixture(scope="session")
def rabbitmq(rabbitmq_home: RabbitmqHome, tmp_path_factory: pytest.TempPathFactory) -> Node:
    """Start one node for all workers: use unique names (uuid), change nothing that others use."""

    def start(folder: Path) -> dict[str, str]:
        node = LocalNode(folder, rabbitmq_home)
        node.start()
        # It ends with the whole run (pytest_configure), not with the first worker.
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
    """Yield a maker of nodes (not started) for tests that kill them; at the end all are killed."""
    nodes: list[LocalNode] = []

    def make() -> LocalNode:
        nodes.append(LocalNode(tmp_path_factory.mktemp("rabbitmq"), rabbitmq_home))
        return nodes[-1]

    yield make
    for node in nodes:
        node.kill()


@pytest.fixture(scope="session")
def cassandra_home() -> CassandraHome:
    """Return this machine's Cassandra; without it or Java, skip on a laptop and fail in CI."""
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
    """Run one node for all tests, which share one worker: empty its keyspace, or use another."""
    with LocalCassandra(tmp_path_factory.mktemp("cassandra"), cassandra_home) as node:
        yield node


@pytest.fixture(scope="session")
def power_cuts() -> None:
    """Require disks whose power can be cut; without FUSE, skip on a laptop and fail in CI.

    /dev/fuse belongs to the kernel, so no set-up can make it: without it tests skip in CI too.
    """
    missing = lacking()
    if missing is not None and os.environ.get("CI") and os.path.exists("/dev/fuse"):
        pytest.fail(f"CI must have {missing}")
    if missing is not None:
        pytest.skip(f"needs {missing}")
