"""Resources that all workers of one test run share: the first that needs one starts it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest


def once_per_run(
    factory: pytest.TempPathFactory, name: str, start: Callable[[Path], dict[str, Any]]
) -> dict[str, Any]:
    """Call ``start`` with a new folder once for all workers; return its result to each of them.

    The result is passed as JSON. If ``start`` raises, the next caller tries again.
    """
    run = folder_of_run(factory)
    file = run / f"{name}.json"
    with locked(run / f"{name}.lock"):
        if not file.exists():
            made = start(factory.mktemp(name))
            file.write_text(json.dumps(made), "utf-8")
        value: dict[str, Any] = json.loads(file.read_text("utf-8"))
    return value


def folder_of_run(factory: pytest.TempPathFactory) -> Path:
    """Return the folder that all workers of this run share."""
    base = factory.getbasetemp()
    # A worker's folder is below the run's.
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@contextlib.contextmanager
def after_the_first(path: Path) -> Iterator[None]:
    """Let the first process run the block alone, then all waiting ones at the same time."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            fcntl.flock(file, fcntl.LOCK_SH)
        yield


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of that name; a process that dies releases it."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
