"""Recorded days: files of one JSON message a line, with the second of the day when it was sent.

Reading and scheduling are pure; :func:`play` sends due messages and collects the receipts.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import orjson

from newsfabric.amqp import Message
from newsfabric.errors import AccessRefused, ConfigError, Rejected
from newsfabric.messages.control import Receipt
from newsfabric.publish import AsyncPublisher
from newsfabric.topics import TopicTable
from operations.cli.messages import make_message
from operations.cli.sending import APP_ID, in_its_name, send_with_retry
from operations.cli.wait_limit import WaitLimit

# Messages that wait for their receipts at a time; more would only wait in a broker.
_AT_ONCE: Final = 200

_FIELDS: Final = ("at", "topic", "key", "version", "message_id", "app_id", "type", "body")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RecordedLine:
    """A recorded message. ``at`` is in seconds since midnight."""

    at: float
    topic: str
    body: bytes
    key: str | None = None
    version: int | None = None
    message_id: str | None = None
    app_id: str | None = None
    type: str | None = None


def read_recording(path: Path) -> list[RecordedLine]:
    """Read a recording's lines, sorted by time; ConfigError names file and line of an error."""
    try:
        text = path.read_bytes()
    except OSError as exc:
        raise ConfigError(f"{path}: {exc.strerror}") from exc
    lines = [
        parse_line(line, f"{path}:{number}")
        for number, line in enumerate(text.splitlines(), 1)
        if line.strip()
    ]
    if not lines:
        raise ConfigError(f"{path}: no message in it")
    return sorted(lines, key=lambda line: line.at)


def parse_line(line: bytes, where: str) -> RecordedLine:
    """Parse one line of a recording; ConfigError states ``where`` and the error."""
    try:
        fields = orjson.loads(line)
    except orjson.JSONDecodeError as exc:
        raise ConfigError(f"{where}: not JSON: {exc}") from exc
    if not isinstance(fields, dict):
        raise ConfigError(f"{where}: not a JSON object")
    if unknown := sorted(set(fields) - set(_FIELDS)):
        raise ConfigError(f"{where}: unknown field {unknown[0]!r}")
    if "body" not in fields:
        raise ConfigError(f"{where}: body is missing")
    return RecordedLine(
        at=float(_checked(fields, "at", int | float, where, required=True)),
        topic=_checked(fields, "topic", str, where, required=True),
        body=orjson.dumps(fields["body"]),
        key=_checked(fields, "key", str, where),
        version=_checked(fields, "version", int, where),
        message_id=_checked(fields, "message_id", str, where),
        app_id=_checked(fields, "app_id", str, where),
        type=_checked(fields, "type", str, where),
    )


def _checked(
    fields: Mapping[str, Any], name: str, kind: Any, where: str, *, required: bool = False
) -> Any:
    value = fields.get(name)
    if value is None and not required:
        return None
    if isinstance(value, bool) or not isinstance(value, kind):
        raise ConfigError(f"{where}: {name} is missing or of a wrong kind")
    return value


def schedule(lines: Sequence[RecordedLine], speed: float) -> Iterator[tuple[float, RecordedLine]]:
    """Yield each line with its due time in seconds after the start; 0 for all if ``speed`` is 0."""
    for line in lines:
        yield (0.0 if speed == 0 else (line.at - lines[0].at) / speed), line


def message_of(line: RecordedLine, *, number: int, suffix: str, now_ms: int) -> Message:
    """Make a message of ``line``. ``suffix`` is added to its id for each replay, unless empty."""
    message_id = line.message_id or f"line-{number}"
    return make_message(
        line.topic,
        line.body,
        message_id=f"{message_id}-{suffix}" if suffix else message_id,
        app_id=line.app_id or APP_ID,
        now_ms=now_ms,
        key=line.key,
        version=line.version,
        type=line.type,
    )


@dataclasses.dataclass(slots=True)
class ReplayCounts:
    """Counts of a replay's receipts; its first message has the number ``begun_at``."""

    routed: int = 0
    rejected: Counter[str] = dataclasses.field(default_factory=Counter)
    begun_at: int = 1
    # Answered numbers that come after one without an answer.
    _ahead: set[int] = dataclasses.field(default_factory=set)
    _behind: int = 0

    def count(self, number: int, receipt: Receipt) -> None:
        """Count the receipt of message ``number``."""
        if receipt.status == "routed":
            self.routed += 1
            self._settle(number)
        else:
            self.reject(number, receipt.reason or "?")

    def reject(self, number: int, reason: str) -> None:
        """Count message ``number`` as rejected."""
        self.rejected[reason] += 1
        self._settle(number)

    def _settle(self, number: int) -> None:
        self._ahead.add(number)
        while self.open_at in self._ahead:
            self._ahead.remove(self.open_at)
            self._behind += 1

    @property
    def open_at(self) -> int:
        """The first message without an answer: all before it are answered."""
        return self.begun_at + self._behind

    @property
    def answered(self) -> int:
        """The number of messages with receipts."""
        return self.routed + self.rejected.total()


async def play(
    lines: Sequence[RecordedLine],
    publishers: Sequence[AsyncPublisher],
    *,
    speed: float,
    suffix: str,
    on_receipt: Callable[[ReplayCounts], None],
    wait: WaitLimit,
    topics: TopicTable,
    counts: ReplayCounts,
) -> None:
    """Send every line when it is due, by ``publishers`` in turn; return when all are answered.

    ``counts`` is kept up to date. The first of ``lines`` has the number ``counts.begun_at``.
    """
    places = asyncio.Semaphore(_AT_ONCE)
    began = asyncio.get_running_loop().time()

    async def send(publisher: AsyncPublisher, number: int, message: Message) -> None:
        try:
            counts.count(number, await send_with_retry(publisher, message))
        except Rejected as exc:
            counts.reject(number, exc.reason)
        except AccessRefused:
            counts.reject(number, "access_refused")
        finally:
            places.release()
            wait.ended()
        on_receipt(counts)

    async with asyncio.TaskGroup() as group:
        for number, (due, line) in enumerate(schedule(lines, speed), counts.begun_at):
            await asyncio.sleep(began + due - asyncio.get_running_loop().time())
            await places.acquire()
            now_ms = time.time_ns() // 1_000_000
            message = message_of(line, number=number, suffix=suffix, now_ms=now_ms)
            message = in_its_name(message, topics)
            wait.began()
            group.create_task(send(publishers[number % len(publishers)], number, message))
