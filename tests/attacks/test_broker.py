"""Attacks of a broker, which was broken into or is faulty, on a service that connects to it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import struct
import tracemalloc
from collections.abc import AsyncIterator, Iterator

import pika.frame
import pika.spec
import pytest
from amqp_links import Inbox
from fake_broker import HANG_UP, FakeBroker
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from newsfabric.amqp import Message
from newsfabric.amqp import channel as channel_module
from newsfabric.amqp import link as link_module
from newsfabric.amqp.link import PikaLink, connect
from newsfabric.amqp.spread import SpreadLink
from newsfabric.amqp.stub import StubBroker
from newsfabric.amqp.wire import MAX_BODY, MAX_HEADER
from newsfabric.backoff import Backoff

MIB = 1 << 20
# More than all socket buffers on the way.
BUFFERS = 16 * MIB


class LinkLines(logging.Handler):
    """The log lines of the links at WARNING and above."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []
        self.came = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())
        self.came.set()

    async def first(self) -> str:
        async with asyncio.timeout(60):
            await self.came.wait()
        return self.lines[0]


@pytest.fixture
async def lines() -> AsyncIterator[LinkLines]:
    handler = LinkLines()
    logging.getLogger("newsfabric.amqp").addHandler(handler)
    yield handler
    logging.getLogger("newsfabric.amqp").removeHandler(handler)


@contextlib.asynccontextmanager
async def victim(
    broker: FakeBroker, *, prefetch: int = 10
) -> AsyncIterator[tuple[PikaLink, Inbox]]:
    link = await connect([broker.url], name="victim")
    try:
        yield link, await Inbox().consume(link, "queue", prefetch=10)
    finally:
        await link.close()


def frame(kind: int, payload: bytes, channel: int = 1) -> bytes:
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + b"\xce"


def method(what: object, channel: int = 1) -> bytes:
    return bytes(pika.frame.Method(channel, what).marshal())


def delivery(tag: int, *, channel: int = 1) -> bytes:
    return method(pika.spec.Basic.Deliver("newsfabric", tag, False, "", "topic"), channel)


def header(size: int, properties: bytes = b"\0\0") -> bytes:
    return frame(2, struct.pack(">HHQ", 60, 0, size) + properties)


EMPTY = header(0)

NONSENSE = {
    "a frame of four gigabytes": struct.pack(">BHI", 1, 1, 2**32 - 1) + b"x" * 10,
    "a header of four gigabytes": delivery(1) + struct.pack(">BHI", 2, 1, 2**32 - 1) + b"x" * 10,
    "a frame with another end": delivery(1)[:-1] + b"\0",
    "a header out of turn": EMPTY,
    "a body out of turn": frame(3, b"x"),
    "two headers": delivery(1) + header(1) + header(1),
    "two deliveries at once": delivery(1) + delivery(2),
    "more body than was announced": delivery(1) + header(1) + frame(3, b"xyz"),
    "a delivery cut short": frame(1, struct.pack(">HH", 60, 60) + b"\x05"),
    "a confirm for a consumer": method(pika.spec.Basic.Ack(1, False)),
    "deliveries that aren't counted": delivery(7) + EMPTY,
    "more deliveries than were asked for": b"".join(delivery(n) + EMPTY for n in range(1, 12)),
    "a method that there isn't": frame(1, b"\xff\xff\xff\xff"),
    "a frame of a kind that there isn't": frame(9, b"x"),
    "a frame for a channel that isn't open": method(pika.spec.Basic.CancelOk("newsfabric"), 9),
}


@pytest.mark.parametrize("nonsense", NONSENSE)
async def test_bytes_that_make_no_sense_stop_a_service(nonsense: str, lines: LinkLines) -> None:
    """The connection ends, one line gives the reason, and the next connection works."""
    says = [NONSENSE[nonsense]]

    def once() -> Iterator[bytes]:
        return iter([says.pop()] if says else [delivery(1) + EMPTY])

    async with FakeBroker.scripted(once) as broker, victim(broker) as (_link, inbox):
        while (taken := await inbox.next()).generation == 1:
            # A message that arrived before the nonsense.
            continue
        assert (taken.tag, taken.message.body) == (1, b"")
        assert broker.connections == 2
        assert len(lines.lines) == 1
        assert "link victim: lost 127.0.0.1:" in lines.lines[0]
        assert len(lines.lines[0]) < 400


async def test_properties_that_make_no_sense_stop_a_service(lines: LinkLines) -> None:
    """Only the message is refused, and the connection goes on."""
    garbage = (b"\xff\xff" * 20, b"\x20\0\xff\xff\xff\xff", b"\x20\0\0\0\0\x04\x03key?", b"", b"\1")
    says = [delivery(n) + header(0, each) for n, each in enumerate(garbage, 1)]
    async with FakeBroker.scripted(lambda: iter(says)) as broker, victim(broker) as (_link, inbox):
        assert [(await inbox.next()).tag for _ in garbage] == [1, 2, 3, 4, 5]
    assert lines.lines == []


def endless_body() -> Iterator[bytes]:
    """Return a message of eight exabytes."""
    piece = frame(3, b"x" * 100_000)
    return itertools.chain([delivery(1) + header(2**63)], itertools.repeat(piece, 640))


def endless_headers() -> Iterator[bytes]:
    """Yield headers of the largest size, in small pieces, on more channels than there are."""
    head = struct.pack(">BHI", 2, 1, MAX_HEADER) + b"\0" * 12 + b"\x20\0" + b"\xff\xff\xff\xff"
    yield delivery(1) + head
    yield from itertools.repeat(b"\xff" * 100, (MAX_HEADER - 100) // 100)


def many_beginnings() -> Iterator[bytes]:
    """Yield the beginnings of messages, on each channel that a number can name."""
    for channel in range(1, 65_536):
        yield delivery(1, channel=channel)
        yield struct.pack(">BHI", 2, channel, 14) + struct.pack(">HHQH", 60, 0, MAX_BODY, 0)
        yield b"\xce" + frame(3, b"x" * 100_000, channel)


ENDLESS = {each.__name__: each for each in (endless_body, endless_headers, many_beginnings)}


@pytest.mark.parametrize("endless", ENDLESS)
async def test_what_never_ends_fills_the_memory_of_a_service(endless: str) -> None:
    done = asyncio.Event()

    def says() -> Iterator[bytes]:
        yield from ENDLESS[endless]()
        done.set()

    async with FakeBroker.scripted(says) as broker, victim(broker) as (link, _inbox):
        tracemalloc.start()
        try:
            async with asyncio.timeout(60):
                ended = [asyncio.create_task(each.wait()) for each in (done, broker.ended)]
                await asyncio.wait(ended, return_when=asyncio.FIRST_COMPLETED)
                for task in ended:
                    task.cancel()
                await asyncio.gather(*ended, return_exceptions=True)
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        # One message of MAX_BODY, or MAX_UNFINISHED small ones, and the bytes in transit.
        assert most < 12 * MIB
        await link.close()


async def test_a_greeting_that_never_ends_fills_the_memory_of_a_service(lines: LinkLines) -> None:
    def says() -> Iterator[bytes]:
        yield struct.pack(">BHI", 1, 0, 2**32 - 1)
        yield from itertools.repeat(b"x" * 10_000, 100_000)

    async with FakeBroker.scripted(says, greets=False) as broker, victim(broker):
        assert "more than 65536 bytes before the connection is open" in await lines.first()
        assert broker.sent_bytes < BUFFERS


METHODS = st.sampled_from(sorted(pika.spec.methods)).map(lambda number: struct.pack(">I", number))
FRAMES = st.lists(
    st.one_of(
        st.builds(
            lambda number, raw, channel: frame(1, number + raw, channel),
            METHODS,
            st.binary(max_size=30),
            st.integers(0, 2),
        ),
        st.builds(frame, st.integers(1, 9), st.binary(max_size=30), st.integers(0, 2)),
        st.sampled_from([delivery(1) + EMPTY, delivery(1), header(3), frame(3, b"xyz")]),
        st.binary(max_size=30),
    ),
    min_size=1,
    max_size=4,
).map(b"".join)


def made(count: int) -> list[bytes]:
    """Return so many byte strings that a broker could send."""
    found: list[bytes] = []

    @settings(max_examples=count, database=None, phases=[Phase.generate])
    @given(FRAMES)
    def collect(reply: bytes) -> None:
        found.append(reply)

    collect()
    return found


async def test_some_frame_or_other_is_raised_out_of_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No bytes of the broker cause an error in the log; see the fixture expect_error_log."""
    monkeypatch.setattr(link_module, "broker_backoff", lambda: Backoff(base=0.001, cap=0.001))
    left = made(150)
    all_sent = asyncio.Event()

    def says() -> Iterator[bytes]:
        if left:
            return iter([left.pop(), HANG_UP])
        all_sent.set()
        return iter([delivery(1) + EMPTY])

    async with FakeBroker.scripted(says) as broker, victim(broker) as (link, _inbox):
        async with asyncio.timeout(120):
            await all_sent.wait()
        assert link.connected
        assert broker.connections == 151


async def test_one_that_is_connected_and_answers_nothing_keeps_no_service_from_starting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(channel_module, "ANSWER_TIMEOUT", 0.05)
    well = StubBroker()
    well.declare_exchange("x")
    queue = well.tap("x")
    silent = FakeBroker.scripted(lambda: iter(()), deaf_to=pika.spec.Channel.Open)
    async with silent as broker, asyncio.timeout(60):
        links = SpreadLink({"ill": await connect([broker.url], name="x"), "well": well.connect()})
        publisher = await links.publisher()
        await publisher.publish("x", Message("news", b"1"))
        assert [message.body for message in well.pop_messages(queue)] == [b"1"]
        # The link tries this broker again, as one that was away.
        await broker.ended.wait()
        await links.close()
