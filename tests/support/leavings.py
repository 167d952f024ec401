"""State that a test may not leave to the next test of its process: threads, limits, folder, …

A test that leaves, say, no descriptors breaks other tests of its process. So each change is
undone, and fails the test that made it and no other. Changed variables and signal handlers are
undone but fail no test: a service that runs in the test's process sets them, and keeps them
until its process ends.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import os
import resource
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping
from concurrent.futures.thread import _threads_queues
from typing import Any

from newsfabric import tls

# The names under which Python and pytest keep a test's failure, with all its frames.
LAST = ("last_exc", "last_type", "last_value", "last_traceback")
# A thread that was asked to end may need a moment; only a broken one takes as long as this.
GRACE_SECONDS = 30.0
# Threads of the Cassandra driver, which end some time after its last connection.
_STAYS = ("event_loop", "Task Scheduler")
_LIMITS = ("RLIMIT_NOFILE", "RLIMIT_AS", "RLIMIT_DATA", "RLIMIT_FSIZE", "RLIMIT_NPROC")
# Not SIGALRM, which is pytest-timeout's.
_SIGNALS = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGQUIT,
    signal.SIGCHLD,
    signal.SIGPIPE,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGWINCH,
)
# pytest sets this variable itself, for each test and phase.
_CHANGES = ("PYTEST_CURRENT_TEST",)


@dataclasses.dataclass(frozen=True)
class Before:
    """The state of a process before a test."""

    threads: frozenset[threading.Thread]
    limits: Mapping[str, tuple[int, int]]
    folder: str
    environment: Mapping[str, str]
    handlers: Mapping[signal.Signals, Any]

    @classmethod
    def now(cls) -> Before:
        environment = dict(os.environ)
        for name in _CHANGES:
            environment.pop(name, None)
        return cls(
            frozenset(threading.enumerate()),
            {name: resource.getrlimit(getattr(resource, name)) for name in _LIMITS},
            os.getcwd(),
            environment,
            {which: signal.getsignal(which) for which in _SIGNALS},
        )

    def differences(self) -> list[str]:
        """Restore the state before the test, except for threads that don't end.

        Returned are the threads that still run, and the limits and the folder that had changed.
        """
        left = [
            thread
            for thread in threading.enumerate()
            if thread not in self.threads and thread.name not in _STAYS and not self._had(thread)
        ]
        for thread in left:
            thread.join(GRACE_SECONDS)
        found = [f"a thread goes on: {thread.name}" for thread in left if thread.is_alive()]
        now = Before.now()
        for name, limit in self.limits.items():
            if now.limits[name] != limit:
                found.append(f"{name} is {now.limits[name]}, not {limit}")
                resource.setrlimit(getattr(resource, name), limit)
        if now.folder != self.folder:
            found.append(f"the folder is {now.folder}, not {self.folder}")
            os.chdir(self.folder)
        for name in sorted(now.environment.keys() | self.environment.keys()):
            value, was = now.environment.get(name), self.environment.get(name)
            if value != was:
                os.environ.pop(name, None)
                os.environ.update({} if was is None else {name: was})
        for which, handler in self.handlers.items():
            if now.handlers[which] != handler:
                signal.signal(which, handler)
        return found

    def _had(self, thread: threading.Thread) -> bool:
        """Return whether the thread is one more of a pool from before the test.

        A session's Cassandra driver, for example, starts one when it hears of a new table."""
        pools = [_threads_queues.get(each) for each in self.threads]
        mine = _threads_queues.get(thread)
        return mine is not None and any(mine is pool for pool in pools)


@contextlib.contextmanager
def certificates_forgotten() -> Iterator[None]:
    """Forget at the end the certificates that were loaded in this context.

    A process of the product keeps its certificates until it ends, and reads their files for each
    scrape of its metrics.
    """
    before = {use: dict(held) for use, held in tls._HELD.items()}
    yield
    for use, held in list(tls._HELD.items()):
        held.clear()
        held.update(before.get(use, {}))
        if not held:
            del tls._HELD[use]
            tls.CERTIFICATES_END.remove(use)


def forget_failure() -> None:
    """Close the objects that a failed test's frames hold; else a later test would close them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        for name in LAST:
            if hasattr(sys, name):
                delattr(sys, name)
        gc.collect()
