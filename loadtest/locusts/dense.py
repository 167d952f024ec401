"""Thousands of readers in one user: each :class:`DenseReaders` runs a ``newsfabric-crowd``.

Its readers behave like an ``AnonymousReader``, with records by the same rules; a greenlet each
would take a hundred times the memory and processor time. Their reports of each second are added to
locust's statistics as counted times, not as one event for each delivery.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

import gevent
import gevent.lock
import gevent.subprocess
from locust import User, task
from locust.exception import StopUser
from locust.stats import RequestStats, StatsEntry, bucket_response_time

from bench.programs import pages_command
from loadtest.locusts import shapes
from loadtest.locusts.options import DENSE
from loadtest.locusts.state import Run, current
from loadtest.times import Times, of_counts

_EVERY: Final = 1.0
_PATIENCE: Final = 60.0
_SOONER_THAN_ANY: Final = 1e9
_TIMES: Final = ("connect", "receive", "resume")
# Count in a report → its event, of which it is a failure, and the text.
_FAILURES: Final = {
    "refused": ("connect", "a gateway refused, or none was offered"),
    "failed": ("connect", "no answer in time, or a wrong one"),
    "foreign": ("connect", "a gateway may not be connected to"),
    "stopped": ("connect", "a gateway sent a close code without reconnect"),
    "errors": ("connect", "a subscription was refused"),
    "gaps": ("gap", "a resume may have missed something"),
    "doubled": ("doubled", "a message came twice"),
    "unnoted": ("receive", "a reader has too many holes to note more"),
}


class CrowdGoneError(Exception):
    """The process has ended, or doesn't reply."""


class CrowdProcess:
    """The process. Greenlets may ask concurrently, and be killed while they wait."""

    def __init__(self, arguments: list[str]) -> None:
        pipe = gevent.subprocess.PIPE
        # Linux shares its cores among sessions, and real readers have computers of their own.
        try:
            self._process = gevent.subprocess.Popen(
                arguments, stdin=pipe, stdout=pipe, start_new_session=True
            )
        except OSError as exc:
            raise CrowdGoneError(f"newsfabric-crowd can't be started: {exc.strerror}") from exc
        self._asking = gevent.lock.BoundedSemaphore()

    def send_command(self, line: str) -> dict[str, Any]:
        """Return its reply to ``line``, or raise CrowdGoneError."""
        # In a greenlet that is never killed: replies are matched to questions by their order.
        asking = gevent.spawn(self._answer, line)
        try:
            found: dict[str, Any] | None = asking.get(timeout=_PATIENCE)
        except gevent.Timeout:
            raise CrowdGoneError("newsfabric-crowd doesn't answer") from None
        if found is None:
            raise CrowdGoneError("newsfabric-crowd has ended")
        if "error" in found:
            raise CrowdGoneError(f"newsfabric-crowd: {found['error']}")
        return found

    def end(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()

    def _answer(self, line: str) -> dict[str, Any] | None:
        with self._asking:
            try:
                self._process.stdin.write(line.encode() + b"\n")
                self._process.stdin.flush()
                return dict(json.loads(self._process.stdout.readline()))
            except (OSError, ValueError):
                return None


class DenseReaders(User):
    """The readers of ``--dense``, an equal share for each such user, in a process of their own."""

    fixed_count = 1

    @task
    def read(self) -> None:
        """Run the readers, until locust ends this user."""
        self.run_now: Run = current()
        self.crowd: CrowdProcess | None = None
        self.run_now.dense_records.add(self.records)
        self.run_now.cuts.add(self._storm)
        try:
            self.crowd = CrowdProcess(self._command())
            self._watch(self.crowd)
        except CrowdGoneError as exc:
            self.environment.stats.log_error("connect", DENSE, str(exc))
            # Its counts can't be trusted: all its readers count as outside (see ``records``).
            self._end()
            # Otherwise locust would begin this task again.
            raise StopUser from exc
        finally:
            self.run_now.cuts.discard(self._storm)
            self.run_now.present.pop(self, None)
            self._leave()
            self._end()

    def records(self) -> list[dict[str, Any]]:
        """Return the entries of all its readers; all are outside if the process is gone."""
        try:
            entries = self._ask("records")["entries"]
        except CrowdGoneError:
            readers = self.run_now.options.dense_each
            nothing: dict[str, Any] = dict.fromkeys(("until", "doubled", "repeats", "gaps"), 0)
            nothing |= {"since": {}, "had": [], "left": False}
            entries = [nothing | {"readers": readers, "outside": readers}]
        return [{"kind": DENSE, **entry} for entry in entries]

    def _command(self) -> list[str]:
        options = self.run_now.options
        return pages_command(
            frontdesks=options.frontdesks,
            topics=options.topics,
            # Of 127/8, and different from other processes'.
            source=options.source or f"127.{1 + secrets.randbelow(250)}.{secrets.randbelow(256)}.1",
            own=options.i_own_this_target,
            seed=None,
        )

    def _ask(self, line: str) -> dict[str, Any]:
        if self.crowd is None:
            raise CrowdGoneError("newsfabric-crowd was never there")
        return self.crowd.send_command(line)

    def _end(self) -> None:
        if self.crowd is not None:
            self.crowd.end()
            self.crowd = None

    def _watch(self, crowd: CrowdProcess) -> None:
        """Keep as many readers as the shape wants, and pass their reports to locust."""
        there, due = 0, time.monotonic()
        while True:
            # The second that begins is the time to reach the number of its end.
            wanted = shapes.dense_at(self.run_now.options, self.run_now.at + _EVERY)
            rate = max(1, abs(wanted - there)) / _EVERY
            crowd.send_command(f"readers {wanted} {rate}")
            due += _EVERY
            gevent.sleep(max(0.0, due - time.monotonic()))
            report = crowd.send_command("report")
            there = report["arrived"] - report["left"]
            self.run_now.present[self] = report["present"]
            if not self.run_now.closed:
                _add_to_stats(self.environment.stats, report, self.run_now.options.body)

    def _storm(self) -> None:
        with contextlib.suppress(CrowdGoneError):
            self._ask("storm")

    def _leave(self) -> None:
        """Have all readers leave: locust ends this user before the test ends."""
        if self.records in self.run_now.dense_records:
            with contextlib.suppress(CrowdGoneError):
                self._ask(f"readers 0 {_SOONER_THAN_ANY}")
            self.run_now.leave_all(self.records)


def _failures(report: Mapping[str, Any]) -> Iterator[tuple[str, str, int]]:
    """Yield the failures of a report: the event, its text, its count."""
    for name, (what, text) in _FAILURES.items():
        if report[name]:
            yield what, text, report[name]


def _add_to_stats(stats: RequestStats, report: Mapping[str, Any], body: int) -> None:
    for what in _TIMES:
        size = 0 if what == "connect" else body
        _log(stats, what, of_counts(report[what]["counts"]), size)
    for what, text, often in _failures(report):
        # A failure without a time of its own is an event of 0 ms, as with other readers.
        if what not in _TIMES:
            _log(stats, what, {0.0: often}, 0)
        for _ in range(often):
            stats.log_error(what, DENSE, text)


def _log(stats: RequestStats, what: str, times: Times, size: int) -> None:
    """Add many events at once. Locust's own function takes one call for each."""
    count = sum(times.values())
    if not count:
        return
    now = time.time()
    some = StatsEntry(stats, DENSE, what)
    some.num_requests = count
    some.total_response_time = sum(ms * often for ms, often in times.items())
    some.min_response_time, some.max_response_time = min(times), max(times)
    some.total_content_length = count * size
    some.num_reqs_per_sec[int(now)] = count
    some.last_request_timestamp = now
    for ms, often in times.items():
        some.response_times[bucket_response_time(ms)] += often
    for entry in (stats.total, stats.get(DENSE, what)):
        entry.extend(some)
