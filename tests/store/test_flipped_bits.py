"""A disk with flipped bits: no message is read that nobody has published."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from envelopes import START_MS, Clock, envelope
from metric_values import value
from stores import TOPICS

from newsfabric.errors import StoreError
from newsfabric.line_limits import LineLimit
from newsfabric.messages.envelope import Envelope
from newsfabric.messages.mailbox import UserMark
from newsfabric.store import _unreadable
from newsfabric.store._unreadable import UNREADABLE
from newsfabric.store.logs import Log, Number, NumberState
from newsfabric.store.sqlite import SqliteStore

LOG = Log("oregon", "oregon-router-1", START_MS)
NAMES = ("news.breaking", "news.sports", "user.7")
MANY = 60
FLIPS = 120
MESSAGES = [
    envelope(
        n,
        at=n,
        topic=NAMES[n % len(NAMES)],
        key=f"story-{n % 5}" if n % 2 else None,
        body=b'{"headline": "%s"}' % (b"words " * n),
    )
    for n in range(1, MANY + 1)
]


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    """Return a file with all of MESSAGES, and a mark on one of them."""
    path = tmp_path / "store.db"
    async with opened(path) as store:
        await store.write(MESSAGES)
        of_a_user = next(e for e in MESSAGES if e.topic == "user.7")
        mark = UserMark(topic="user.7", id=of_a_user.id, kind="read", at_ms=START_MS + 999)
        await store.mark([mark])
    return path


@contextlib.asynccontextmanager
async def opened(path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(path, TOPICS, now_ms=Clock())
    try:
        yield store
    finally:
        await store.close()


def flip(path: Path, content: bytes, bit: int) -> None:
    """Make the file ``content`` with one bit flipped."""
    damaged = bytearray(content)
    damaged[bit // 8] ^= 1 << bit % 8
    path.write_bytes(damaged)
    for journal in path.parent.glob(f"{path.name}-*"):
        journal.unlink()


def start_of_index(path: Path) -> int:
    """Return the offset of the index by topic; all of it is on one page."""
    connection = sqlite3.connect(path)
    try:
        (size,) = connection.execute("PRAGMA page_size").fetchone()
        (page,) = connection.execute(
            "SELECT rootpage FROM sqlite_schema WHERE name = 'messages_by_topic'"
        ).fetchone()
    finally:
        connection.close()
    return (int(page) - 1) * int(size)


async def read(store: SqliteStore) -> list[Envelope]:
    """Return all messages that can be read, by each method; a StoreError is allowed, too."""
    found: list[Envelope] = []
    for topic in NAMES:
        for ask in (store.history, store.latest):
            with contextlib.suppress(StoreError):
                found += await ask(topic, limit=1_000)
        with contextlib.suppress(StoreError):
            found += await store.since(topic, from_ms=0, limit=1_000)
    with contextlib.suppress(StoreError):
        found += [kept.envelope for kept in (await store.mailboxes(["user.7"], limit=100))[0]]
    with contextlib.suppress(StoreError):
        numbers = await store.numbers(LOG, first=1, last=MANY, limit=MANY)
        found += [number.envelope for number in numbers if number.envelope]
    return found


@pytest.mark.promise("R7")
async def test_one_flipped_bit_anywhere_in_the_file_makes_no_other_message(path):
    content = path.read_bytes()
    written = set(MESSAGES)
    dice = random.Random(29)
    for bit in [dice.randrange(len(content) * 8) for _ in range(FLIPS)]:
        flip(path, content, bit)
        async with opened(path) as store:
            # A message without a body stands for an unreadable row: no reader gets it.
            found = {each for each in await read(store) if each.body}
            assert found <= written, f"bit {bit}"


@pytest.mark.promise("R7")
@pytest.mark.parametrize("flipped", [b"words words", b"oregon-router-1@", b'"story-'])
async def test_a_message_with_a_flipped_bit_is_reported_and_its_number_is_missing(
    path, flipped, caplog, monkeypatch
):
    # Other tests have used up the limit of lines.
    monkeypatch.setattr(_unreadable, "_lines", LineLimit())
    content = path.read_bytes()
    flip(path, content, content.index(flipped) * 8 + 1)
    caplog.set_level(logging.WARNING, "newsfabric.store")
    async with opened(path) as store:
        numbers = await store.numbers(LOG, first=1, last=MANY, limit=MANY)
        (half,) = (number for number in numbers if number.state is NumberState.HALF)
        damaged = next(e for e in MESSAGES if e.seq == half.seq)
        others = [Number(e.seq, NumberState.MESSAGE, e) for e in MESSAGES if e is not damaged]
        assert [number for number in numbers if number != half] == others
        history = await store.history(damaged.topic, limit=1_000)
        assert [e.id for e in history if not e.body] == [damaged.id]
        here = [e for e in MESSAGES if e.topic == damaged.topic and e is not damaged]
        assert [e for e in history if e.body] == here
    assert f"{damaged.topic}', '{damaged.id}" in caplog.text


@pytest.mark.promise("R7")
async def test_a_message_that_an_index_hides_is_reported(path, expect_error_log):
    content = path.read_bytes()
    hidden = MESSAGES[29]
    at = content.index(f"{hidden.topic}{hidden.id}".encode(), start_of_index(path))
    flip(path, content, at * 8 + 1)
    expect_error_log(r"store\.db is damaged, .* index messages_by_topic")
    store = SqliteStore(path, TOPICS, now_ms=Clock(), look_every_s=0.05)
    try:
        found = await store.since(hidden.topic, from_ms=0, limit=1_000)
        assert hidden not in found
        await store.write([envelope(MANY + 1, at=MANY + 1)])
        text = value(UNREADABLE)
        async with asyncio.timeout(60):
            while value(UNREADABLE) == text:  # noqa: ASYNC110 - no event tells
                await asyncio.sleep(0.05)
    finally:
        await store.close()
