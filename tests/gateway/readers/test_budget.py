"""The bound of all readers' waiting bytes, and the end of readers that take nothing."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

from gateways import until

from gateway.readers.budget import Budget, ReaderStream
from gateway.wire.outbox import ENTRY_BYTES, Account, Outbox, OutboxLimits
from newsfabric.closing import SLOW_READER, CloseReason

PIECE = bytes(1 << 20)


class WaitingReader:
    """A connection with the parts that the budget uses."""

    def __init__(self, budget: Budget, stream: ReaderStream | None = None) -> None:
        self.outbox = Outbox(OutboxLimits(), budget.account)
        self.stream = stream
        self.closed: CloseReason | None = None
        if stream is not None:
            stream.reader = self  # type: ignore[assignment]

    @property
    def waiting_bytes(self) -> int:
        return self.outbox.pending_bytes + (self.stream.waiting if self.stream else 0)

    def close(self, reason: CloseReason) -> None:
        self.closed = reason
        self.outbox.clear()


class BudgetClock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def budget_of(
    most_bytes: int, readers: list[WaitingReader], clock: BudgetClock | None = None
) -> Budget:
    return Budget(most_bytes, 30.0, lambda: readers, clock or BudgetClock())  # type: ignore[return-value]


@contextlib.asynccontextmanager
async def stream_of(budget: Budget) -> AsyncIterator[tuple[ReaderStream, socket.socket]]:
    """Open a stream to a peer that reads only when the test does."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    stream = ReaderStream(ours, budget, lambda: None, max_buffer_size=1 << 16)
    with theirs:
        try:
            yield stream, theirs
        finally:
            stream.close()


def test_a_frame_that_many_wait_for_counts_once_and_each_place_too() -> None:
    account = Account()
    outboxes = [Outbox(OutboxLimits(), account) for _ in range(3)]
    frame = bytes(1_000)
    for outbox in outboxes:
        outbox.push_firm(frame, 0.0)
    assert account.bytes == 1_000 + 3 * ENTRY_BYTES
    outboxes[0].take_frames(1)
    assert account.bytes == 1_000 + 2 * ENTRY_BYTES
    outboxes[1].clear()
    outboxes[2].take_frames(1)
    assert account.bytes == 0


async def test_over_the_bound_those_furthest_behind_go_until_an_eighth_is_free() -> None:
    readers: list[WaitingReader] = []
    budget = budget_of(1_000_000, readers)
    readers += [WaitingReader(budget) for _ in range(11)]
    for number, reader in enumerate(readers):
        reader.outbox.push_firm(bytes(number * 10_000 + 40_000), 0.0)
    await asyncio.sleep(0)
    # A little over 990,000 bytes wait for the eleven; one more frame is too much.
    assert [reader.closed for reader in readers] == [None] * 11
    readers[0].outbox.push_firm(bytes(20_000), 0.0)
    await asyncio.sleep(0)
    assert [reader.closed for reader in readers] == [None] * 10 + [SLOW_READER]
    assert budget.waiting_bytes <= 875_000


async def test_what_goodbyes_take_is_not_searched_for_again_at_once() -> None:
    budget = budget_of(1_000_000, [])
    stuck = Outbox(OutboxLimits(), budget.account)
    looked = 0

    def readers() -> list[WaitingReader]:
        nonlocal looked
        looked += 1
        return []

    budget._readers = readers  # type: ignore[assignment]
    for _ in range(105):
        stuck.push_firm(bytes(11_000), 0.0)
        await asyncio.sleep(0)
    assert looked == 2
    stuck.clear()
    budget.check_streams()
    stuck.push_firm(bytes(1_000_001), 0.0)
    await asyncio.sleep(0)
    assert looked == 3


async def test_a_stream_that_takes_nothing_is_given_up_and_one_that_takes_something_isnt() -> None:
    clock = BudgetClock()
    budget = budget_of(1 << 30, [], clock)
    async with stream_of(budget) as (stalled, _), stream_of(budget) as (slow, theirs):
        for stream in (stalled, slow):
            stream.write(PIECE)
        assert budget.waiting_bytes == stalled.waiting + slow.waiting > 0
        sent = slow.sent
        while slow.sent == sent:
            with contextlib.suppress(BlockingIOError):
                theirs.recv(1 << 16)
            await asyncio.sleep(0)
        clock.now += 29.0
        budget.check_streams()
        assert not stalled.closed()
        clock.now += 1.0
        budget.check_streams()
        assert stalled.closed()
        assert not slow.closed()
        assert budget.waiting_bytes == slow.waiting
        clock.now += 30.0
        budget.check_streams()
        assert slow.closed()
        assert budget.waiting_bytes == 0


async def test_a_reader_whose_stream_takes_nothing_learns_it_if_little_goes_before() -> None:
    clock, readers = BudgetClock(), list[WaitingReader]()
    budget = budget_of(1 << 30, readers, clock)
    async with stream_of(budget) as (short, theirs), stream_of(budget) as (long, _):
        readers += [WaitingReader(budget, short), WaitingReader(budget, long)]
        long.write(PIECE)
        while not short.waiting:
            short.write(bytes(10_000))
        clock.now += 30.0
        budget.check_streams()
        assert [reader.closed for reader in readers] == [SLOW_READER, SLOW_READER]
        assert (short.closed(), long.closed()) == (False, True)
        assert theirs.recv(1)


async def test_streams_count_and_the_furthest_behind_of_them_go_first() -> None:
    readers: list[WaitingReader] = []
    budget = budget_of(2_500_000, readers)
    async with stream_of(budget) as (one, _), stream_of(budget) as (two, _):
        readers.append(WaitingReader(budget))
        readers[0].outbox.push_firm(bytes(100_000), 0.0)
        one.write(PIECE)
        two.write(PIECE)
        await asyncio.sleep(0)
        assert (one.closed(), two.closed()) == (False, False)
        two.write(PIECE)
        await until(two.closed)
        assert not one.closed()
        assert readers[0].closed is None
        assert budget.waiting_bytes < 2_500_000


async def test_of_streams_that_are_as_far_behind_the_one_that_began_to_wait_first_goes() -> None:
    budget = budget_of(3_500_000, [])
    async with stream_of(budget) as (one, _), stream_of(budget) as (two, _):
        for stream in (one, two, two, one):
            stream.write(PIECE)
        assert one.waiting == two.waiting
        await asyncio.sleep(0)
        assert (one.closed(), two.closed()) == (True, False)


async def test_who_is_hardly_behind_stays_where_others_have_only_begun_to_be_sent_something() -> (
    None
):
    readers: list[WaitingReader] = []
    budget = budget_of(1_000_000, readers)
    async with contextlib.AsyncExitStack() as stack:
        little = WaitingReader(budget)
        little.outbox.push_firm(bytes(5_000), 0.0)
        readers.append(little)
        for _ in range(10):
            stream, _theirs = await stack.enter_async_context(stream_of(budget))
            while not stream.waiting:
                stream.write(bytes(10_000))
            readers.append(WaitingReader(budget, stream))
            # Less than is still sent before a goodbye: closing alone would free none of it.
            stream.write(bytes(100_000))
        await asyncio.sleep(0)
        assert little.closed is None
        assert budget.waiting_bytes <= 875_000
        assert [one.stream.closed() for one in readers[1:] if one.stream].count(True) in (2, 3)


async def test_what_waits_for_those_who_are_closing_goes_before_others() -> None:
    readers: list[WaitingReader] = []
    budget = budget_of(1_000_000, readers)
    readers += [WaitingReader(budget), WaitingReader(budget)]
    little, leaving = readers
    # It was closing before: closing it again frees nothing.
    leaving.close = lambda reason: None  # type: ignore[method-assign]
    little.outbox.push_firm(bytes(5_000), 0.0)
    leaving.outbox.push_firm(bytes(1_000_000), 0.0)
    await asyncio.sleep(0)
    assert (little.closed, len(leaving.outbox), len(little.outbox)) == (None, 0, 1)
