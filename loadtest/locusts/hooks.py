"""The connection of a run to locust: options, shape, samples, the end. Imported by the locustfile.

A test may end with its shape, by Ctrl-C or SIGTERM, or by the web page's button. In each case the
records of all processes are compared, and the report is written. Workers send their records at the
master's request.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any, Final

import gevent
from locust import LoadTestShape, User, events, runners
from locust.html import get_html_report
from locust.runners import (
    STATE_MISSING,
    WORKER_REPORT_INTERVAL,
    LocalRunner,
    MasterRunner,
    WorkerRunner,
)

from loadtest.locusts import shapes, state
from loadtest.locusts.dense import DenseReaders
from loadtest.locusts.options import ARGUMENTS, READERS, LocustOptions, OptionError, checked
from loadtest.locusts.publishers import AmqpPublisher, HttpPublisher
from loadtest.locusts.report import LocustSample, Row, write_report
from loadtest.locusts.users import (
    AnonymousReader,
    FallbackReader,
    RegisteredReader,
    RoamingReader,
    SlowReader,
)
from loadtest.records import Census, census
from newsfabric.safe_output import echo

_READERS: Final = {
    user.__name__: user
    for user in (AnonymousReader, RegisteredReader, RoamingReader, SlowReader, FallbackReader)
}
assert tuple(_READERS) == READERS
_ASK, _RECORDS = "loadtest-ask", "loadtest-records"
_PATIENCE: Final = 30.0
# Looks, a second apart, without a heartbeat of a worker, whose machine is busy.
runners.HEARTBEAT_LIVENESS = 15
# Seconds between two lines on the terminal.
_SAY_EVERY: Final = 9.5


class _Test:
    """The run in the process that decides: the master, or the only one."""

    def __init__(self) -> None:
        self.options: LocustOptions | None = None
        self.samples: list[LocustSample] = []
        self.records: dict[str, dict[str, Any]] = {}
        self.finished = True
        #: Worker → its dense readers that are present.
        self.dense: dict[str, int] = {}
        #: Workers that took part. Locust forgets those that die; their records are still required.
        self.workers: set[str] = set()
        #: True if the test must end at once: by a signal, or because of wrong options.
        self.ending = False
        #: Seconds since readers last received anything, at the last sample.
        self.quiet = 0.0
        self.sampler: gevent.Greenlet | None = None
        self.storms: list[gevent.Greenlet] = []


_test = _Test()

# The shape sets the rate, in steps of a second; locust must do each step at once.
logging.getLogger("locust.runners").addFilter(
    lambda record: "spawn rate is very high" not in record.getMessage()
)


class Shape(LoadTestShape):
    """The shape of :mod:`loadtest.locusts.shapes`, for locust."""

    def tick(self) -> tuple[int, float, list[type[User]]] | None:
        """Return the users for now, with publishers; all new ones start at once."""
        if _test.options is None:
            _test.options = checked(vars(self.runner.environment.parsed_options))
        if _test.ending:
            return None
        readers = shapes.readers_at(_test.options, self.get_run_time(), _test.quiet)
        if readers is None:
            return None
        others = _test.options.publishers + _test.options.dense_users
        rate = float(_test.options.readers + others + 100)
        return readers + others, rate, _user_classes(_test.options)


@events.init_command_line_parser.add_listener
def _add_arguments(parser: Any) -> None:
    for one in ARGUMENTS:
        if one.default is False:
            parser.add_argument(one.flag, action="store_true", help=one.help)
        elif one.choices:
            parser.add_argument(one.flag, default=one.default, choices=one.choices, help=one.help)
        else:
            kind = type(one.default)
            parser.add_argument(one.flag, default=one.default, type=kind, help=one.help)


@events.init.add_listener
def _init(environment: Any, **_more: Any) -> None:
    runner = environment.runner
    if isinstance(runner, WorkerRunner):
        runner.register_message(_ASK, _asked)
        return
    if isinstance(runner, MasterRunner):
        runner.register_message(_RECORDS, _records_came)
    try:
        checked(vars(environment.parsed_options))
    except OptionError as exc:
        echo(f"error: {exc}", err=True)
        sys.exit(2)
    if environment.parsed_options.headless:
        # Locust obeys signals only after a shape has ended.
        for number in (signal.SIGINT, signal.SIGTERM):
            gevent.signal_handler(number, _end)


def _end() -> None:
    """End the test in good order at the first signal, and the process at the second."""
    if _test.ending:
        os._exit(130)
    _test.ending = True


@events.test_start.add_listener
def _started(environment: Any, **_more: Any) -> None:
    runner = environment.runner
    ending = _test.ending
    _test.__init__()  # type: ignore[misc]
    _test.ending = ending
    try:
        options = checked(vars(environment.parsed_options))
        run = state.begin(options)
    except OptionError as exc:
        # Options of the web page, which shows this among the failures.
        _test.ending = True
        echo(f"error: {exc}", err=True)
        environment.stats.log_error("options", "refused", str(exc))
        environment.process_exit_code = 2
        return
    _test.options, _test.finished = options, False
    for name, user in _READERS.items():
        user.weight = options.mix.get(name, 0)
    AmqpPublisher.fixed_count = options.amqp_publishers
    HttpPublisher.fixed_count = options.http_publishers
    DenseReaders.fixed_count = options.dense_users
    # A worker gets numbers of all kinds, also of those without any users.
    if not isinstance(runner, WorkerRunner):
        environment.user_classes = _user_classes(options)
    if not isinstance(runner, MasterRunner):
        _test.storms = [gevent.spawn_later(at, _storm, run) for at in shapes.storms(options)]
    if isinstance(runner, MasterRunner):
        _test.workers = _living(runner)
    if not isinstance(runner, WorkerRunner):
        _test.sampler = gevent.spawn(_sample, environment)


def _user_classes(options: LocustOptions) -> list[type[User]]:
    """Return the kinds of users with at least one user."""
    readers = (user for name, user in _READERS.items() if options.mix.get(name))
    others = {
        DenseReaders: options.dense_users,
        AmqpPublisher: options.amqp_publishers,
        HttpPublisher: options.http_publishers,
    }
    return [
        *(readers if options.readers else ()),
        *(user for user, count in others.items() if count),
    ]


def _storm(run: state.Run) -> None:
    for cut in list(run.cuts):
        cut()


@events.test_stopping.add_listener
def _stopping(environment: Any, **_more: Any) -> None:
    if isinstance(environment.runner, WorkerRunner):
        return
    # Locust's own end of a test doesn't wait for workers' records, so they are requested here.
    _finish(environment)
    # The web page may begin another test, with other options.
    _test.options, _test.ending = None, False


@events.quitting.add_listener
def _quitting(environment: Any, **_more: Any) -> None:
    if not isinstance(environment.runner, WorkerRunner):
        _finish(environment)


@events.worker_connect.add_listener
def _worker_came(client_id: str, **_more: Any) -> None:
    """Add a new worker to the test that runs."""
    if not _test.finished:
        _test.workers.add(client_id)


def _living(runner: MasterRunner) -> set[str]:
    """Return the workers that reply."""
    return {client.id for client in runner.clients.all if client.state != STATE_MISSING}


@events.report_to_master.add_listener
def _reports(client_id: str, data: dict[str, Any]) -> None:
    data["dense"] = _dense_here()


@events.worker_report.add_listener
def _was_reported(client_id: str, data: dict[str, Any]) -> None:
    _test.dense[client_id] = data["dense"]


def _dense_here() -> int:
    return sum(state.current().present.values()) if state.is_running() else 0


def _dense_there(runner: MasterRunner) -> int:
    """Return the dense readers of all workers that reply."""
    return sum(_test.dense.get(worker, 0) for worker in _living(runner))


def _asked(environment: Any, **_more: Any) -> None:
    environment.runner.send_message(_RECORDS, state.current().close())


def _records_came(environment: Any, msg: Any, **_more: Any) -> None:
    _test.records[str(msg.node_id)] = msg.data


def _finish(environment: Any) -> None:
    """Compare the records, write the report, and set the exit code. Once for each test."""
    if _test.finished or _test.options is None:
        return
    _test.finished = True
    options = _test.options
    for greenlet in (_test.sampler, *_test.storms):
        if greenlet is not None:
            greenlet.kill(block=False)
    missing = _gather(environment.runner)
    readers = [one for records in _test.records.values() for one in records["readers"]]
    publishers = [one for records in _test.records.values() for one in records["publishers"]]
    found = census(readers, publishers)
    broken = [*found.broken_promises()]
    if missing:
        broken.append(f"{missing} workers sent no records")
    for kind in sorted(found.lost_by):
        environment.stats.log_error("lost", kind, f"{found.lost_by[kind]} deliveries were lost")
    environment.process_exit_code = 1 if broken else 0
    folder = Path(options.report)
    folder.mkdir(parents=True, exist_ok=True)
    document = get_html_report(environment, show_download_link=False)
    (folder / "locust.html").write_text(document, encoding="utf-8")
    write_report(folder, options, _test.samples, found, broken, _rows(environment))
    _print_end(found, broken, folder)


def _gather(runner: Any) -> int:
    """Put all records into ``_test.records``; return the number of workers without."""
    if isinstance(runner, LocalRunner):
        _test.records = {"local": state.current().close()}
        return 0
    runner.send_message(_ASK)
    deadline = time.monotonic() + _PATIENCE
    while _living(runner) - _test.records.keys() and time.monotonic() < deadline:
        gevent.sleep(0.1)
    # Time for the figures, which are sent every few seconds.
    gevent.sleep(3.5)
    return len(_test.workers - _test.records.keys())


def _print_end(found: Census, broken: list[str], folder: Path) -> None:
    for text in broken:
        echo(f"not kept: {text}")
    echo(
        f"{found.readers} readers, {found.messages} messages, {found.owed} deliveries owed, "
        f"{found.lost} lost, {found.doubled} doubled; the report is {folder / 'report.html'}",
    )


def _rows(environment: Any) -> list[Row]:
    """Return the report's table of events."""
    rows = []
    for (name, what), entry in sorted(environment.stats.entries.items(), key=lambda e: e[0][::-1]):
        p50, p99 = (entry.get_response_time_percentile(share) or 0.0 for share in (0.5, 0.99))
        most = float(entry.max_response_time or 0.0)
        failures = int(entry.num_failures)
        rows.append((str(what), str(name), int(entry.num_requests), failures, p50, p99, most))
    return rows


def _sample(environment: Any) -> None:
    """Take a sample as often as figures arrive; sometimes print a line on the terminal."""
    runner = environment.runner
    master = isinstance(runner, MasterRunner)
    every = WORKER_REPORT_INTERVAL if master else 1.0
    began = time.monotonic()
    before: dict[str, int] = {}
    printed_at = 0.0
    while True:
        gevent.sleep(every)
        entries = environment.stats.entries
        totals: dict[str, int] = {"failures": 0}
        slowest: dict[str, list[tuple[float, float]]] = {}
        for (_name, what), entry in list(entries.items()):
            totals[what] = totals.get(what, 0) + entry.num_requests
            totals["failures"] += entry.num_failures
            shares = [
                float(entry.get_current_response_time_percentile(share) or 0.0)
                for share in (0.5, 0.99)
            ]
            if entry.num_requests:
                slowest.setdefault(what, []).append((shares[0], shares[1]))
        users = runner.reported_user_classes_count if master else runner.user_classes_count
        dense = _dense_there(runner) if master else _dense_here()
        sample = LocustSample(
            at=time.monotonic() - began,
            readers=sum(users.get(name, 0) for name in READERS) + dense,
            **{
                what: round((totals.get(what, 0) - before.get(what, 0)) / every, 1)
                for what in ("connect", "receive", "resume", "publish", "doubled", "failures")
            },
            connect_ms=_most(slowest.get("connect")),
            delay_ms=_most(slowest.get("receive")),
        )
        _test.quiet = (
            0.0 if sample.receive or sample.resume or sample.doubled else _test.quiet + every
        )
        before = totals
        _test.samples.append(sample)
        if sample.at >= printed_at + _SAY_EVERY:
            printed_at = sample.at
            p50, p99 = sample.delay_ms
            echo(
                f"{sample.at:6.0f} s  {sample.readers} readers, {sample.receive:.0f} received/s, "
                f"delay p50 {p50:.0f} ms p99 {p99:.0f} ms, "
                f"{totals.get('doubled', 0)} doubled, {totals['failures']} failures",
            )


def _most(pairs: list[tuple[float, float]] | None) -> tuple[float, float]:
    """Return the highest p50 and p99 of all kinds of readers."""
    if not pairs:
        return 0.0, 0.0
    return max(pair[0] for pair in pairs), max(pair[1] for pair in pairs)
