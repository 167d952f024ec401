"""The state that all users of one locust process share: options, clock, records. Pure but for time.

One run is under way at a time; :func:`begin` makes it, and users get it from :func:`current`.
"""

from __future__ import annotations

import base64
import itertools
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from loadtest.locusts import shapes
from loadtest.locusts.options import LocustOptions, OptionError
from loadtest.records import Identities, PublisherRecord, ReaderRecord

_MAX_TOKENS: Final = 100_000
_MAX_TOKEN_BYTES: Final = 8192


class Run:
    """A test in one process. ``users`` have a token each; secrets are only kept here."""

    def __init__(self, options: LocustOptions) -> None:
        self.options = options
        self.tokens = read_tokens(options.tokens_file)
        self.users = [user_of(token) for token in self.tokens]
        self.amqp_password = _secret(options.amqp_password_file)
        self.http_key = _secret(options.http_key_file)
        self.identities = Identities()
        self.publishers: list[PublisherRecord] = []
        #: Records of readers that are present.
        self.records: set[ReaderRecord] = set()
        #: Entries of readers that have left.
        self.left: list[dict[str, Any]] = []
        #: Functions that return the entries of a process of dense readers; called once, at its end.
        self.dense_records: set[Callable[[], list[dict[str, Any]]]] = set()
        #: Process of dense readers → the number of its connected readers.
        self.present: dict[object, int] = {}
        #: Functions that cut the open connections, one for each.
        self.cuts: set[Callable[[], None]] = set()
        self.closed = False
        self._began = time.monotonic()
        self._number = itertools.count()

    @property
    def at(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self._began

    @property
    def messages_each(self) -> float:
        """Messages a second of one publisher, now."""
        return shapes.messages_at(self.options, self.at) / self.options.publishers

    @property
    def settling(self) -> bool:
        """True in the time for the last messages to arrive."""
        return self.at >= self.options.seconds

    def number(self) -> int:
        """Return 0, 1, …: a different number for each call."""
        return next(self._number)

    def leave(self, record: ReaderRecord) -> None:
        """Note that a reader has left. After the end of the run its record is closed already."""
        if record in self.records:
            self.records.discard(record)
            self.left.append(record.entry(time.time_ns(), left=True))

    def leave_all(self, entries: Callable[[], list[dict[str, Any]]]) -> None:
        """Note that the readers of another process have left."""
        if entries in self.dense_records:
            self.dense_records.discard(entries)
            self.left += entries()

    def close(self) -> dict[str, Any]:
        """Return all records, for the census; later events don't count."""
        if not self.closed:
            self.closed = True
            now = time.time_ns()
            self.left += [record.entry(now) for record in self.records]
            self.records.clear()
            for entries in list(self.dense_records):
                self.leave_all(entries)
        return {"readers": self.left, "publishers": [record.entry() for record in self.publishers]}


_current: Run | None = None


def begin(options: LocustOptions) -> Run:
    """Begin a new run in place of the old one. OptionError for files that can't be read."""
    global _current
    _current = Run(options)
    return _current


def is_running() -> bool:
    """Return whether a run has begun."""
    return _current is not None


def current() -> Run:
    """Return the run under way; RuntimeError if there is none."""
    if _current is None:
        raise RuntimeError("no load test has begun")
    return _current


def read_tokens(path: str) -> list[str]:
    """Return the tokens in the file, one a line; none without a file."""
    if not path:
        return []
    lines = _secret(path).split()
    if not 0 < len(lines) <= _MAX_TOKENS or max(map(len, lines)) > _MAX_TOKEN_BYTES:
        raise OptionError(f"--tokens-file: 1 to {_MAX_TOKENS} tokens of at most 8 KiB, one a line")
    return lines


def user_of(token: str) -> str:
    """Return the user in ``token``, without verifying it: gateways do that."""
    try:
        middle = token.split(".")[1]
        return str(json.loads(base64.urlsafe_b64decode(middle + "=" * (-len(middle) % 4)))["sub"])
    except (IndexError, ValueError, KeyError, TypeError) as exc:
        raise OptionError("--tokens-file: a line in it is no token") from exc


def _secret(path: str) -> str:
    if not path:
        return ""
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as exc:
        raise OptionError(f"{path} can't be read") from exc
