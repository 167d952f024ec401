"""Bytes of strangers, at any pace: each end is counted with its reason, and nothing leaks."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import json
import signal
from pathlib import Path

import pytest
from dataplanes import GREETING, Control, Dataplane, driven, gateway_settings, storm, subscribed
from gateways import RawSocket, Response, until

from gateway.wire.protocol import ReaderLimits
from newsfabric.closing import CLOSE_REASONS

CODES = {reason.name: reason.code for reason in CLOSE_REASONS}
HANDSHAKE = (
    b"GET /websocket HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
# Bytes that a storm may leave behind: pages of a heap that has found its size.
GROWTH = 6 << 20


async def closed_with(raw: RawSocket) -> tuple[list[int], int]:
    """Return the codes of the ``disconnect`` pushes and of the close frame, which must come."""
    codes = []
    while (frame := await raw.read_frame())[0] != 0x88:
        if frame[0] == 0x81 and frame[1].startswith(b'{"type":"disconnect"'):
            codes.append(json.loads(frame[1])["code"])
    return codes, int.from_bytes(frame[1][:2], "big")


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"\x16\x03\x01\x02\0", 400),
        (b"GET /websocket HTTP/1.1\r\nHo st: x\r\n\r\n", 400),
        (b"GET /websocket\r\n\r\n", 400),
        (b"GET /websocket HTTP/1.1\r\nA\0: x\r\n\r\n", 400),
        (HANDSHAKE.replace(b"GET", b"G\xffT"), 400),
        (HANDSHAKE.replace(b"Version: 13", b"Version: 7"), 426),
        (HANDSHAKE.replace(b"ZSBu", b""), 400),
        (HANDSHAKE.replace(b"==", b""), 400),
        (HANDSHAKE.replace(b"Connection: Upgrade\r\n", b""), 400),
        (HANDSHAKE.replace(b"\r\n\r\n", b"\r\nX: " + b"x" * 20_000), 431),
        (HANDSHAKE.replace(b"\r\n\r\n", b"\r\n" + b"X: x\r\n" * 100 + b"\r\n"), 431),
    ],
    ids=lambda value: repr(value)[:60],
)
async def test_a_malformed_head_is_answered_and_counted(
    tmp_path: Path, head: bytes, status: int
) -> None:
    async with driven(tmp_path) as (plane, control), plane.reader() as raw:
        raw.send(head)
        assert Response.of(await raw.read_all()).status == status
        await control.counted(bad_requests=1, accepts=1)


async def test_a_longer_head_than_the_limit_is_refused(tmp_path: Path) -> None:
    small = gateway_settings(native={"head_bytes": 1_000})
    async with driven(tmp_path, settings=small) as (plane, control):
        for size, status in ((600, 101), (1_000, 431)):
            async with plane.reader() as raw:
                raw.send(HANDSHAKE.replace(b"\r\n\r\n", b"\r\nX: " + b"x" * size + b"\r\n\r\n"))
                assert Response.of(await raw.read_until(b"\r\n\r\n")).status == status
        await control.counted(bad_requests=1)


async def test_there_is_a_longest_head_whatever_the_setting(tmp_path: Path) -> None:
    huge = gateway_settings(native={"head_bytes": 1 << 30})
    async with driven(tmp_path, settings=huge) as (plane, control), plane.reader() as raw:
        raw.send(HANDSHAKE.replace(b"\r\n\r\n", b"\r\nX: " + b"x" * 70_000))
        assert Response.of(await raw.read_all()).status == 431
        await control.counted(bad_requests=1)


async def test_a_head_that_trickles_in_has_a_deadline_from_the_first_byte(tmp_path: Path) -> None:
    quick = gateway_settings(unfinished_seconds=0.4)
    async with driven(tmp_path, settings=quick) as (plane, control), plane.reader() as raw:
        loop = asyncio.get_running_loop()
        before, cpu = loop.time(), plane.cpu
        with contextlib.suppress(ConnectionError):
            for byte in HANDSHAKE * 10:
                raw.send(bytes((byte,)))
                await asyncio.sleep(0.02)
                if raw.at_end:
                    break
        # Long before the last byte would have been sent.
        assert loop.time() - before < 20
        assert plane.cpu - cpu < 0.3
        await control.counted(handshake_timeouts=1)


async def test_a_connection_that_says_nothing_has_the_same_deadline(tmp_path: Path) -> None:
    quick = gateway_settings(unfinished_seconds=0.2)
    async with driven(tmp_path, settings=quick) as (plane, control), plane.reader() as raw:
        assert await raw.read_all() == b""
        await control.counted(handshake_timeouts=1)


async def test_connections_that_end_before_their_request_are_counted(tmp_path: Path) -> None:
    async with driven(tmp_path) as (plane, control):
        async with plane.reader():
            pass
        async with plane.reader() as raw:
            raw.send(GREETING[:20])
        async with plane.reader() as raw:
            raw.send(GREETING)
            await raw.read_until(b"SockJS!\n")
        await control.counted(accepts=3, abandoned=3, thread__0__connections=0)


BIG = 1_000
FRAMES = {
    "unmasked": (b"\x81\x02{}", "protocol_error"),
    "reserved bit": (b"\xa1\x80\0\0\0\0", "protocol_error"),
    "compressed without agreement": (b"\xc1\x80\0\0\0\0", "protocol_error"),
    "reserved opcode": (b"\x83\x80\0\0\0\0", "protocol_error"),
    "reserved control opcode": (b"\x8b\x80\0\0\0\0", "protocol_error"),
    "fragmented ping": (b"\x09\x80\0\0\0\0", "protocol_error"),
    "ping of 126": (b"\x89\xfe\0\x7e\0\0\0\0", "protocol_error"),
    "continuation of nothing": (b"\x80\x80\0\0\0\0", "protocol_error"),
    "text within a text": (b"\x01\x80\0\0\0\0\x01\x80\0\0\0\0", "protocol_error"),
    "close of one byte": (b"\x88\x81\0\0\0\0\x03", "protocol_error"),
    "close 1005": (b"\x88\x82\0\0\0\0\x03\xed", "protocol_error"),
    "close 999": (b"\x88\x82\0\0\0\0\x03\xe7", "protocol_error"),
    "close with a reason that isn't UTF-8": (
        b"\x88\x83\0\0\0\0\x03\xe8\xff", "invalid_payload"),
    "not UTF-8": (b"\x81\x82\0\0\0\0\xff\xfe", "invalid_payload"),
    "UTF-8 cut short": (b"\x81\x82\0\0\0\0\xe2\x82", "invalid_payload"),
    "a surrogate": (b"\x81\x83\0\0\0\0\xed\xa0\x80", "invalid_payload"),
    "a length that isn't minimal": (b"\x81\xfe\0\x02\0\0\0\0{}", "protocol_error"),
    "a negative length": (b"\x81\xff" + b"\xff" * 8 + bytes(4), "protocol_error"),
    "an endless length": (b"\x81\xff\x7f" + b"\xff" * 7 + bytes(4), "too_big"),
    "a frame too big": (b"\x81\xfe\x03\xe9\0\0\0\0", "too_big"),
    "fragments too big": ((b"\x01\xfe\x01\xf4" + bytes(4) + b"x" * 500)
                          + (b"\x00\xfe\x01\xf5" + bytes(4) + b"x" * 501), "too_big"),
}  # fmt: skip


@pytest.mark.parametrize("name", FRAMES)
async def test_a_malformed_frame_ends_with_its_code_and_is_counted(
    tmp_path: Path, name: str
) -> None:
    data, reason = FRAMES[name]
    small = gateway_settings(reader=ReaderLimits(frame_bytes=BIG))
    async with driven(tmp_path, settings=small) as (plane, control):
        for size in (len(data), 1):
            async with plane.reader() as raw:
                await subscribed(raw, "news.breaking")
                for at in range(0, len(data), size):
                    raw.send(data[at : at + size])
                    if size == 1 and len(data) < 100:
                        await asyncio.sleep(0.001)
                assert await closed_with(raw) == ([CODES[reason]], CODES[reason])
        await control.counted(**{f"closes__{reason}": 2})


@pytest.mark.parametrize(
    ("text", "heard"),
    [
        (b"{", [b"\x03\xea"]),
        (b'["x"', [b"\x03\xea"]),
        # Not UTF-8: an error of WebSocket, not of SockJS.
        (b'["\xed\xa0\x80"]', [b"a[", b"c[", b"\x03\xef"]),
        (b"[1]", []),
        (b'""', []),
    ],
)
async def test_a_broken_sockjs_string_ends_it_abruptly(
    tmp_path: Path, text: bytes, heard: list[bytes]
) -> None:
    async with driven(tmp_path) as (plane, control), plane.reader() as raw:
        assert (await raw.upgrade("/sockjs/0/a/websocket")).status == 101
        assert await raw.read_frame() == (0x81, b"o")
        control.answers = False
        raw.send_frame(0x81, text)
        for start in heard:
            assert (await raw.read_frame())[1].startswith(start)
        if not heard:
            await control.until(lambda: control.verbs)
            assert control.verbs[0][2] == b""


async def test_a_peer_that_vanished_is_closed_after_two_heartbeats(tmp_path: Path) -> None:
    quick = gateway_settings(heartbeat=1.0)
    async with (
        driven(tmp_path, settings=quick) as (plane, control),
        plane.reader() as gone,
        plane.reader() as alive,
    ):
        await subscribed(gone, "news.breaking")
        await subscribed(alive, "news.breaking")
        for _ in range(4):
            assert (await alive.read_frame())[0] == 0x89
            alive.send_frame(0x8A, b"")
        await control.counted(closes__no_pong=1, readers__websocket=1)
        assert await closed_with(gone) == ([4203], 4203)


async def test_readers_are_not_blamed_for_a_data_plane_that_stood_still(tmp_path: Path) -> None:
    """With more to read than one turn takes, the data plane sends a ping before it closes."""
    quick = gateway_settings(heartbeat=1.0)
    async with (
        driven(tmp_path, "--threads=1", settings=quick) as (plane, _),
        contextlib.AsyncExitStack() as stack,
    ):
        pongs = collections.Counter[int]()

        async def answer(number: int) -> None:
            reader = await stack.enter_async_context(plane.reader())
            await reader.upgrade()
            while (await reader.read_frame())[0] == 0x89:
                pongs[number] += 1
                reader.send_frame(0x8A, b"")

        async with asyncio.TaskGroup() as group:
            readers = [group.create_task(answer(number)) for number in range(300)]
            await until(lambda: len(pongs) == 300)
            plane.process.send_signal(signal.SIGSTOP)
            # For this time it gets no processor.
            await asyncio.sleep(4 * quick.heartbeat)
            plane.process.send_signal(signal.SIGCONT)
            pongs.clear()
            await until(lambda: len(pongs) == 300 or any(reader.done() for reader in readers))
            assert not any(reader.done() for reader in readers)
            for reader in readers:
                reader.cancel()


async def test_a_vanished_peer_with_a_full_socket_is_closed_too(tmp_path: Path) -> None:
    quick = gateway_settings(heartbeat=0.3)
    async with driven(tmp_path, settings=quick) as (plane, control):
        control.slow = "drop_oldest"
        async with plane.reader(receive_buffer=4096) as gone:
            await subscribed(gone, "video.clip")
            for _ in range(30):
                control.publish("video.clip", "x" * 30_000)
            await control.counted(closes__no_pong=1, closing=0)


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        (None, 101),
        ("https://www.example.org", 101),
        ("HTTPS://WWW.example.org", 101),
        ("http://127.0.0.1", 101),
        ("https://evil.example.org", 403),
        ("null", 403),
        ("https://www.example.org.evil.org", 403),
    ],
)
async def test_only_listed_origins_get_in(tmp_path: Path, origin: str | None, status: int) -> None:
    listed = gateway_settings(origins=("https://www.example.org",))
    async with driven(tmp_path, settings=listed) as (plane, control), plane.reader() as raw:
        headers = {} if origin is None else {"Origin": origin}
        assert (await raw.upgrade(**headers)).status == status
        await control.counted(rejected__origin=int(status == 403))


async def test_one_too_many_gets_overload(tmp_path: Path) -> None:
    async with (
        driven(tmp_path, "--threads=2", settings=gateway_settings(capacity=2)) as (plane, control),
        plane.reader() as first,
        plane.reader() as second,
        plane.reader() as third,
    ):
        await subscribed(first, "news.breaking")
        await subscribed(second, "news.breaking")
        assert (await third.upgrade()).status == 101
        assert await closed_with(third) == ([1013], 1013)
        await control.counted(rejected__capacity=1, readers__websocket=2)


async def settled(plane: Dataplane, control: Control, **expected: int) -> None:
    await control.counted(**expected, closing=0, readers__websocket=0)


async def test_ten_thousand_resets_are_counted_and_leave_nothing(tmp_path: Path) -> None:
    async with driven(tmp_path, "--threads=2") as (plane, control):
        # The first connections let the heap find its size.
        await asyncio.to_thread(storm, plane.port, 1_000)
        await control.counted(accepts=1_000, abandoned=1_000)
        descriptors, rss = plane.descriptors(), plane.rss
        async with plane.reader() as reader:
            await subscribed(reader, "news.breaking")
            await asyncio.to_thread(storm, plane.port, 10_000)
            push = control.publish()
            assert await reader.read_frame() == (0x81, push.encode())
            await control.counted(accepts=11_001, abandoned=11_000)
        await settled(plane, control, abandoned=11_000)
        assert plane.descriptors() == descriptors
        assert plane.rss - rss < GROWTH


async def test_ten_thousand_malformed_heads_are_counted_and_leave_nothing(tmp_path: Path) -> None:
    async with driven(tmp_path, "--threads=2") as (plane, control):
        await asyncio.to_thread(storm, plane.port, 1_000, b"nonsense\r\n\r\n")
        await control.until_counter("accepts", 1_000)
        descriptors, rss = plane.descriptors(), plane.rss
        await asyncio.to_thread(storm, plane.port, 10_000, b"nonsense\r\n\r\n")
        await control.until_counter("accepts", 11_000)
        counters = await control.counted(
            closing=0, thread__0__connections=0, thread__1__connections=0
        )
        # A reset may destroy bytes that were sent before it.
        assert counters["bad_requests"] + counters["abandoned"] == 11_000
        assert counters["bad_requests"] > 0
        assert plane.descriptors() <= descriptors
        assert plane.rss - rss < GROWTH


async def test_ten_thousand_readers_that_are_reset_are_counted_and_leave_nothing(
    tmp_path: Path,
) -> None:
    verb = b'{"action":"subscribe","topic":"news.breaking"}'
    request = HANDSHAKE + bytes((0x81, 0x80 | len(verb))) + bytes(4) + verb
    async with driven(tmp_path, "--threads=2") as (plane, control):
        await asyncio.to_thread(storm, plane.port, 1_000, request)
        await control.until_counter("accepts", 1_000)
        descriptors, rss = plane.descriptors(), plane.rss
        for _ in range(10):
            await asyncio.to_thread(storm, plane.port, 1_000, request)
            control.publish()
        await control.until_counter("accepts", 11_000)
        counters = await control.counted(readers__websocket=0, closing=0)
        lost = counters["closes.lost"]
        assert lost == counters["connects.websocket"]
        assert lost + counters["abandoned"] == 11_000
        assert plane.descriptors() <= descriptors
        assert plane.rss - rss < GROWTH
