"""permessage-deflate on the wire, against an independent implementation."""

from __future__ import annotations

import contextlib
import json
import zlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import websockets
from dataplanes import Dataplane, driven, gateway_settings, subscribed
from gateways import Reader
from websockets.extensions.permessage_deflate import ClientPerMessageDeflateFactory

from gateway.wire.protocol import ReaderLimits

DEFLATE = {"Sec_WebSocket_Extensions": "permessage-deflate"}
TOPIC = "news.breaking"
LONG = {"text": "all the news that's fit to print, " * 100}


@contextlib.asynccontextmanager
async def reader(plane: Dataplane, **offer: Any) -> AsyncIterator[Reader]:
    factory = ClientPerMessageDeflateFactory(**offer)
    url = f"ws://127.0.0.1:{plane.port}/websocket"
    async with websockets.connect(url, compression=None, extensions=[factory]) as connection:
        yield Reader(connection)


@pytest.mark.parametrize(
    "offer",
    [
        {},
        {"client_max_window_bits": True},
        {"client_max_window_bits": 9},
        {"server_max_window_bits": 9},
        {"server_max_window_bits": 15, "client_max_window_bits": 15},
        {"server_no_context_takeover": True},
        {"server_no_context_takeover": True, "client_no_context_takeover": True},
    ],
    ids=str,
)
async def test_whatever_is_offered_both_directions_work(
    tmp_path: Path, offer: dict[str, Any]
) -> None:
    async with driven(tmp_path) as (plane, control), reader(plane, **offer) as one:
        assert one.connection.protocol.extensions
        await one.subscribe(TOPIC)
        for number in range(3):
            push = control.publish(TOPIC, {**LONG, "n": number})
            assert await one.hear() == json.loads(push)
        # A verb that the library compresses, several times without context.
        for _ in range(3):
            assert await one.answer_to(action="ping", ref="x" * 5_000) == {"type": "pong"}


@pytest.mark.parametrize(
    ("offer", "answer"),
    [
        ("permessage-deflate", "permessage-deflate"),
        ("x-webkit-deflate-frame, permessage-deflate", "permessage-deflate"),
        ("permessage-deflate; nonsense, permessage-deflate", "permessage-deflate"),
        ("permessage-deflate; server_max_window_bits=7", None),
        ("permessage-deflate; server_max_window_bits", None),
        ("permessage-deflate; server_no_context_takeover=1", None),
        ("permessage-deflate; client_max_window_bits=16", None),
        ("permessage-deflate; server_no_context_takeover; server_no_context_takeover", None),
        ("permessage-bzip2", None),
        (";;;,,,", None),
    ],
)
async def test_offers_that_cant_be_accepted_are_declined_and_the_reader_comes_in(
    tmp_path: Path, offer: str, answer: str | None
) -> None:
    async with driven(tmp_path) as (plane, _), plane.reader() as raw:
        response = await raw.upgrade(Sec_WebSocket_Extensions=offer)
        assert response.status == 101
        chosen = response.headers.get("sec-websocket-extensions")
        assert (chosen and chosen.split(";")[0]) == answer


async def test_where_it_is_off_nobody_gets_it(tmp_path: Path) -> None:
    off = gateway_settings(native={"deflate_bytes": 0})
    async with driven(tmp_path, settings=off) as (plane, _), plane.reader() as raw:
        response = await raw.upgrade(**DEFLATE)
        assert "sec-websocket-extensions" not in response.headers


async def test_all_who_negotiated_get_the_same_bytes_and_others_plain_ones(
    tmp_path: Path,
) -> None:
    async with (
        driven(tmp_path, "--threads=2") as (plane, control),
        plane.reader() as plain,
        contextlib.AsyncExitStack() as stack,
    ):
        await subscribed(plain, TOPIC)
        raws = [await stack.enter_async_context(plane.reader()) for _ in range(8)]
        for raw in raws:
            await subscribed(raw, TOPIC, **DEFLATE)
        push = control.publish(TOPIC, LONG)
        frames = {await raw.read_frame() for raw in raws}
        assert len(frames) == 1
        first, payload = frames.pop()
        assert first == 0xC1
        assert len(payload) < len(push) / 5
        assert zlib.decompressobj(-15).decompress(payload + b"\0\0\xff\xff") == push.encode()
        assert await plain.read_frame() == (0x81, push.encode())
        # A message is compressed once for all readers; a second message doesn't mention it.
        small = control.publish(TOPIC, 1, key="k")
        assert len(small) > 100
        assert [await raw.read_frame() for raw in raws] == [await plain.read_frame()] * 8


async def test_below_the_threshold_nothing_is_compressed(tmp_path: Path) -> None:
    high = gateway_settings(native={"deflate_bytes": 2_000})
    async with driven(tmp_path, settings=high) as (plane, control), plane.reader() as raw:
        await subscribed(raw, TOPIC, **DEFLATE)
        control.publish(TOPIC, "x" * 1_000)
        assert (await raw.read_frame())[0] == 0x81
        control.publish(TOPIC, "x" * 3_000)
        assert (await raw.read_frame())[0] == 0xC1


def deflated(data: bytes) -> bytes:
    compress = zlib.compressobj(9, zlib.DEFLATED, -15)
    return (compress.compress(data) + compress.flush(zlib.Z_SYNC_FLUSH)).removesuffix(
        b"\0\0\xff\xff"
    )


async def test_a_deflate_bomb_ends_with_1009_and_no_memory(tmp_path: Path) -> None:
    small = gateway_settings(reader=ReaderLimits(frame_bytes=16_384))
    async with driven(tmp_path, settings=small) as (plane, control):
        bomb = deflated(bytes(10 << 20))
        assert len(bomb) < 16_384
        before = plane.rss
        for _ in range(20):
            async with plane.reader() as raw:
                await subscribed(raw, TOPIC, **DEFLATE)
                raw.send_frame(0xC1, bomb)
                pushes = await raw.read_pushes()
                assert pushes[-1]["code"] == 1009
        await control.counted(closes__too_big=20)
        assert plane.rss - before < 2 << 20


@pytest.mark.parametrize(
    ("payload", "code"),
    [(b"\xff\xff\xff", 1007), (deflated(b"\xff\xfe"), 1007), (b"\x06", 1007)],
)
async def test_what_doesnt_inflate_to_a_text_ends_with_1007(
    tmp_path: Path, payload: bytes, code: int
) -> None:
    async with driven(tmp_path) as (plane, _), plane.reader() as raw:
        await subscribed(raw, TOPIC, **DEFLATE)
        raw.send_frame(0xC1, payload)
        assert (await raw.read_pushes())[-1]["code"] == code
