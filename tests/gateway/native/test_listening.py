"""Accepting readers: from any listener, behind proxies, and with too few descriptors."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dataplanes import (
    GREETING,
    PAGE,
    Control,
    attached,
    dataplane,
    driven,
    gateway_settings,
    subscribed,
    taking_over,
)
from gateways import Response

from gateway.native import commands
from gateway.process.settings import GatewaySettings
from gateway.wire.outbox import OutboxLimits

V2 = b"\r\n\r\n\0\r\nQUIT\n"
OURS = b"\x7f\0\0\x01\x1f\x90"


def version2(command: int, family: int, rest: bytes) -> bytes:
    return V2 + bytes((command, family)) + len(rest).to_bytes(2, "big") + rest


HEADERS = {
    "v1": b"PROXY TCP4 192.0.2.7 127.0.0.1 4000 80\r\n",
    "v1, IPv6": b"PROXY TCP6 2001:db8::7 ::1 4000 80\r\n",
    "v1, unknown": b"PROXY UNKNOWN whatever it says\r\n",
    "v2": version2(0x21, 0x11, b"\xc0\0\x02\x07" + b"\x7f\0\0\x01" + OURS[4:] * 2),
    "v2 with more": version2(0x21, 0x11, b"\xc0\0\x02\x07" + OURS + OURS[4:] + b"\x04\0\x01x"),
    "v2, IPv6": version2(
        0x21, 0x21, bytes.fromhex("20010db8" + "0" * 23 + "7") + bytes(16) + OURS[4:] * 2
    ),
    "v2, local": version2(0x20, 0x00, b""),
}
ADDRESSES = {
    "v1": "192.0.2.7",
    "v1, IPv6": "2001:db8::7",
    "v1, unknown": "127.0.0.1",
    "v2": "192.0.2.7",
    "v2 with more": "192.0.2.7",
    "v2, IPv6": "2001:db8::7",
    "v2, local": "127.0.0.1",
}


def behind_proxies(**settings: Any) -> GatewaySettings:
    """Return the settings of a gateway that has proxies in front on this machine."""
    return gateway_settings(native={"proxy_from": ("127.0.0.0/8",)}, **settings)


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    """Open a listener as a service manager hands it down: blocking, with no option set."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(100)
        yield listening


async def handed(control: Control) -> tuple[socket.socket, str]:
    return await asyncio.wait_for(control.handed.get(), 60)


@pytest.mark.parametrize("inherited", [False, True])
async def test_accepted_sockets_send_at_once_and_have_bounded_buffers(
    tmp_path: Path, listening: socket.socket, inherited: bool
) -> None:
    inherits = {"listening": listening} if inherited else {}
    async with (
        driven(tmp_path, "--threads=2", **inherits) as (plane, control),
        plane.reader() as raw,
    ):
        raw.send(PAGE)
        passed, address = await handed(control)
        with passed:
            assert address == "127.0.0.1"
            assert passed.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert passed.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == 256 * 1024


async def test_threads_that_share_an_inherited_listener_all_serve(
    tmp_path: Path, listening: socket.socket
) -> None:
    async with (
        driven(tmp_path, "--threads=3", listening=listening) as (plane, control),
        contextlib.AsyncExitStack() as stack,
    ):
        assert plane.port == listening.getsockname()[1]
        raws = [await stack.enter_async_context(plane.reader()) for _ in range(200)]
        for raw in raws:
            await subscribed(raw, "news.breaking")
        counters = await control.counted(readers__websocket=200, accepts=200)
        shares = [counters[f"thread.{n}.connections"] for n in range(3)]
        assert sum(shares) == 200
        push = control.publish()
        assert [await raw.read_frame() for raw in raws] == [(0x81, push.encode())] * 200
        listening.close()


@pytest.mark.parametrize("name", HEADERS)
async def test_the_address_in_a_proxy_header_survives_a_hand_over(
    tmp_path: Path, name: str
) -> None:
    async with (
        driven(tmp_path, "--proxy-protocol", settings=behind_proxies()) as (plane, control),
        plane.reader() as raw,
    ):
        raw.send(HEADERS[name] + PAGE)
        passed, address = await handed(control)
        with passed:
            assert address == ADDRESSES[name]
            # Only the header is gone.
            assert passed.recv(4096) == PAGE


@pytest.mark.parametrize("name", HEADERS)
async def test_a_proxy_header_may_be_cut_anywhere(tmp_path: Path, name: str) -> None:
    header = HEADERS[name]
    async with driven(tmp_path, "--proxy-protocol", settings=behind_proxies()) as (plane, control):

        async def cut(at: int) -> None:
            async with plane.reader() as raw:
                raw.send(header[:at])
                # One turn of the loop, in which the first half is read.
                await asyncio.sleep(0.02)
                raw.send(header[at:] + GREETING)
                assert (await raw.read_until(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")

        await asyncio.gather(*(cut(at) for at in range(1, len(header) + 1)))
        await control.counted(bad_requests=0, accepts=len(header))


async def test_a_proxy_header_may_come_byte_by_byte(tmp_path: Path) -> None:
    async with (
        driven(tmp_path, "--proxy-protocol", settings=behind_proxies()) as (plane, control),
        plane.reader() as raw,
    ):
        for byte in HEADERS["v2"] + PAGE:
            raw.send(bytes((byte,)))
            await asyncio.sleep(0.001)
        passed, address = await handed(control)
        with passed:
            assert (address, passed.recv(4096)) == ("192.0.2.7", PAGE)


@pytest.mark.parametrize(
    "data",
    [
        GREETING,
        b"PROXY TCP4 192.0.2.7\r\n",
        b"PROXY TCP4 192.0.2.700 127.0.0.1 4000 80\r\n",
        b"PROXY TCP4 192.0.2.7 127.0.0.1 4000 80\n",
        b"PROXY TCP4 192.0.2.7 127.0.0.1 04000 80\r\n",
        b"PROXY TCP9 a b 1 2\r\n",
        b"PROXY " + b"x" * 120,
        V2 + b"\x31\x11\0\0",
        version2(0x21, 0x11, b"short"),
        version2(0x21, 0x12, bytes(12)),
        version2(0x21, 0x11, bytes(5000)),
    ],
    ids=lambda data: repr(data[:40]),
)
async def test_what_is_no_proxy_header_is_closed_without_a_word(
    tmp_path: Path, data: bytes
) -> None:
    async with (
        driven(tmp_path, "--proxy-protocol", settings=behind_proxies()) as (plane, control),
        plane.reader() as raw,
    ):
        raw.send(data)
        with contextlib.suppress(ConnectionError):
            assert await raw.read_all() == b""
        await control.counted(bad_requests=1, handovers=0)


async def test_half_a_proxy_header_has_the_handshakes_deadline(tmp_path: Path) -> None:
    quick = behind_proxies(unfinished_seconds=0.2)
    async with (
        driven(tmp_path, "--proxy-protocol", settings=quick) as (plane, control),
        plane.reader() as raw,
    ):
        raw.send(b"PROXY TCP4 ")
        with contextlib.suppress(ConnectionError):
            assert await raw.read_all() == b""
        await control.counted(handshake_timeouts=1)


async def test_connections_are_counted_by_the_address_in_the_header(tmp_path: Path) -> None:
    two = behind_proxies(per_address=2)
    async with (
        driven(tmp_path, "--proxy-protocol", "--threads=2", settings=two) as (plane, control),
        contextlib.AsyncExitStack() as stack,
    ):
        for number in range(3):
            for _ in range(2):
                raw = await stack.enter_async_context(plane.reader())
                raw.send(b"PROXY TCP4 192.0.2.%d 127.0.0.1 4000 80\r\n" % number)
                await subscribed(raw, "news.breaking")
        async with plane.reader() as third:
            third.send(HEADERS["v1"].replace(b".7 ", b".0 ") + GREETING)
            assert Response.of(await third.read_all()).status == 503
        await control.counted(rejected__address=1, readers__websocket=6)


async def test_an_ipv6_network_of_64_bits_counts_as_one_address(tmp_path: Path) -> None:
    one = behind_proxies(per_address=1)
    async with (
        driven(tmp_path, "--proxy-protocol", settings=one) as (plane, control),
        plane.reader() as first,
        plane.reader() as neighbour,
        plane.reader() as stranger,
    ):
        header = b"PROXY TCP6 2001:db8:0:%x::%x ::1 4000 80\r\n"
        first.send(header % (1, 1))
        await subscribed(first, "news.breaking")
        neighbour.send(header % (1, 0xFFFF) + GREETING)
        assert Response.of(await neighbour.read_all()).status == 503
        stranger.send(header % (2, 1))
        await subscribed(stranger, "news.breaking")
        await control.counted(rejected__address=1, readers__websocket=2)


async def test_only_from_listed_networks_a_proxy_header_says_who_the_reader_is(
    tmp_path: Path,
) -> None:
    elsewhere = gateway_settings(native={"proxy_from": ("10.0.0.0/8", "2001:db8::/32")})
    nowhere = gateway_settings()
    async with driven(tmp_path, "--proxy-protocol", settings=elsewhere) as (plane, control):
        for settings in (elsewhere, nowhere):
            control.settle(settings)
            await control.count()
            for header in (HEADERS["v1"], HEADERS["v2"], HEADERS["v2, local"]):
                async with plane.reader() as raw:
                    raw.send(header + PAGE)
                    assert Response.of(await raw.read_all()).status == 400
        async with plane.reader() as raw:
            raw.send(PAGE)
            passed, address = await handed(control)
            with passed:
                assert (address, passed.recv(4096)) == ("127.0.0.1", PAGE)
        control.settle(gateway_settings(native={"proxy_from": ("10.0.0.0/8", "127.0.0.0/8")}))
        await control.count()
        async with plane.reader() as raw:
            raw.send(HEADERS["v1"] + PAGE)
            passed, address = await handed(control)
            with passed:
                assert (address, passed.recv(4096)) == (ADDRESSES["v1"], PAGE)
        async with plane.reader() as raw:
            raw.send(PAGE)
            with contextlib.suppress(ConnectionError):
                assert await raw.read_all() == b""
        await control.counted(bad_requests=7)


async def test_one_address_has_so_many_connections_and_then_more_when_they_end(
    tmp_path: Path,
) -> None:
    two = gateway_settings(per_address=2)
    async with driven(tmp_path, "--threads=2", settings=two) as (plane, control):
        async with plane.reader() as first, plane.reader() as second:
            await subscribed(first, "news.breaking")
            await subscribed(second, "news.breaking")
            async with plane.reader() as third:
                third.send(PAGE)
                assert Response.of(await third.read_all()).status == 503
            await control.counted(rejected__address=1, handovers=0)
        await control.counted(readers__websocket=0, closing=0)
        async with plane.reader() as fourth:
            await subscribed(fourth, "news.breaking")


@pytest.mark.parametrize("table", [(), ("--shared-table",)], ids=["private", "shared"])
async def test_out_of_descriptors_it_pauses_and_goes_on(
    tmp_path: Path, table: tuple[str, ...]
) -> None:
    async with (
        driven(tmp_path, "--threads=1", *table) as (plane, control),
        contextlib.AsyncExitStack() as stack,
    ):
        first = await stack.enter_async_context(plane.reader())
        await subscribed(first, "news.breaking")
        plane.leave_room_for(3)
        others = [await stack.enter_async_context(plane.reader()) for _ in range(8)]
        for raw in others:
            raw.send(GREETING)
        await control.until_counter("accept_pauses", 1)
        before = plane.cpu
        # In this time, a busy loop would use the processor.
        await asyncio.sleep(1.0)
        assert plane.cpu - before < 0.2
        push = control.publish()
        assert await first.read_frame() == (0x81, push.encode())
        counters = await control.count()
        assert counters["accepts"] < 9
        plane.leave_room_for(100)
        for raw in others:
            head = await raw.read_until(b"\r\n\r\n")
            assert Response.of(head).status == 200
        await control.counted(accepts=9)


async def test_a_pause_ends_in_a_drain_too(tmp_path: Path) -> None:
    async with (
        driven(tmp_path, "--threads=1") as (plane, control),
        contextlib.AsyncExitStack() as stack,
    ):
        staying = await stack.enter_async_context(plane.reader())
        await subscribed(staying, "news.breaking")
        plane.leave_room_for(3)
        for _ in range(8):
            await stack.enter_async_context(plane.reader())
        await control.until_counter("accept_pauses", 1)
        # The drain sends no reader away for hours: it only stops accepting readers.
        control.send(commands.drain(10_000.0, 1))
        before = plane.cpu
        # In this time, a busy loop would use the processor.
        await asyncio.sleep(1.5)
        assert plane.cpu - before < 0.2


async def test_a_control_plane_that_comes_while_descriptors_are_out_is_let_in_later(
    tmp_path: Path,
) -> None:
    async with (
        driven(tmp_path, "--threads=1", "--shared-table") as (plane, control),
        contextlib.AsyncExitStack() as stack,
    ):
        plane.leave_room_for(2)
        for _ in range(4):
            await stack.enter_async_context(plane.reader())
        await control.until_counter("accept_pauses", 1)
        before = plane.cpu
        entering = asyncio.create_task(stack.enter_async_context(attached(plane)))
        await asyncio.sleep(1.0)
        assert plane.cpu - before < 0.2
        plane.leave_room_for(100)
        second = await entering
        assert second.attached is not None
        assert second.attached.attachment == 2
        assert control.refused == "replaced"


async def test_a_newer_data_plane_has_the_options_of_the_older_one(
    tmp_path: Path, listening: socket.socket
) -> None:
    two = behind_proxies(per_address=2)
    header = HEADERS["v1"]
    async with (
        dataplane(tmp_path, "--proxy-protocol", "--threads=2", listening=listening) as plane,
        plane.reader() as first,
    ):
        async with attached(plane, two):
            first.send(header)
            await subscribed(first, "news.breaking")
        async with taking_over(plane) as newer:
            await newer.serves()
            async with attached(plane, two) as control:
                async with plane.reader() as second, plane.reader() as third:
                    second.send(header)
                    await subscribed(second, "news.breaking")
                    third.send(header + GREETING)
                    assert Response.of(await third.read_all()).status == 503
                    await control.counted(rejected__address=1, readers__websocket=2)
                # The first one's place is free once it leaves, though another process counted it.
                await first.close()
                await control.counted(readers__websocket=0, closing=0)
                async with plane.reader() as fourth, plane.reader() as page:
                    fourth.send(header)
                    await subscribed(fourth, "news.breaking")
                    page.send(header + PAGE)
                    passed, address = await handed(control)
                    with passed:
                        assert (address, passed.recv(4096)) == (ADDRESSES["v1"], PAGE)


async def test_a_take_over_closes_nobody_who_was_let_wait(tmp_path: Path) -> None:
    roomy = gateway_settings(outbox=OutboxLimits(soft_bytes=32 << 20, hard_bytes=32 << 20))
    async with (
        dataplane(tmp_path, "--threads=1") as plane,
        contextlib.AsyncExitStack() as stack,
    ):
        async with attached(plane, roomy) as control:
            for topic in ("news.a", "news.b", "news.c"):
                raw = await stack.enter_async_context(plane.reader(receive_buffer=4096))
                await subscribed(raw, topic)
                for _ in range(40):
                    control.publish(topic, "x" * 200_000)
            await control.flushed()
            waits = (await control.count())["outbox_bytes"]
            # Smaller settings close no reader: frames that wait already may stay.
            small = dataclasses.replace(roomy, outbox_memory=waits * 95 // 100)
            control.settle(small)
            await control.counted(readers__websocket=3, closes__slow_reader=0)
        async with taking_over(plane) as newer:
            await newer.serves()
            async with attached(plane, small) as control:
                await control.flushed()
                await control.counted(readers__websocket=3, closes__slow_reader=0)
