"""Requests that the data plane doesn't serve are handed to the control plane, byte for byte."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest
from dataplanes import GREETING, PAGE, attached, dataplane, driven, gateway_settings
from gateways import Response, opened_box

import gateway.run.app

REQUESTS = {
    "events": PAGE,
    "xhr_streaming": b"POST /sockjs/0/a/xhr_streaming HTTP/1.1\r\nHost: x\r\n\r\n",
    "xhr_send with its body": (
        b'POST /sockjs/0/a/xhr_send HTTP/1.1\r\nHost: x\r\nContent-Length: 8\r\n\r\n["ping"]'
    ),
    "pipelined": PAGE + GREETING + PAGE,
    "behind a request of ours": GREETING + PAGE,
    "a body that isn't there yet": b"POST /x HTTP/1.1\r\nContent-Length: 1000\r\n\r\nhalf",
}


@pytest.mark.parametrize("name", REQUESTS)
async def test_every_byte_is_there_however_the_request_comes_in_pieces(
    tmp_path: Path, name: str
) -> None:
    request = REQUESTS[name]
    ours = len(GREETING) if request.startswith(GREETING) else 0
    async with driven(tmp_path, "--threads=2") as (plane, control):
        for size in (len(request), 7, 1):
            async with plane.reader() as raw:
                for at in range(0, len(request), size):
                    raw.send(request[at : at + size])
                    await asyncio.sleep(0.001 if size < len(request) else 0)
                passed, address = await asyncio.wait_for(control.handed.get(), 60)
                with passed:
                    assert address == "127.0.0.1"
                    passed.setblocking(False)
                    got = b""
                    while len(got) < len(request) - ours:
                        got += await asyncio.get_running_loop().sock_recv(passed, 65536)
                    assert got == request[ours:]


async def test_without_a_control_plane_they_are_asked_to_come_back(tmp_path: Path) -> None:
    waiting = gateway_settings(retry_after_ms=7_000)
    async with dataplane(tmp_path) as plane:
        async with attached(plane, waiting) as control, plane.reader() as raw:
            raw.send(PAGE)
            (await asyncio.wait_for(control.handed.get(), 60))[0].close()
        for request in (PAGE, REQUESTS["xhr_send with its body"] * 50):
            async with plane.reader() as raw:
                raw.send(request)
                answer = Response.of(await raw.read_all())
                assert (answer.status, answer.headers["retry-after"]) == (503, "7")
        async with plane.reader() as raw:
            raw.send(GREETING)
            assert Response.of(await raw.read_until(b"\r\n\r\n")).status == 200
        async with attached(plane) as control:
            counts = await control.count()
        # An I/O thread that doesn't know yet that no control plane is attached hands one over,
        # which is then answered on the way.
        assert counts["unavailable"] + counts["handovers"] == 3


async def test_more_than_a_stopped_control_plane_can_take_are_asked_to_come_back(
    tmp_path: Path,
) -> None:
    async with (
        driven(tmp_path, "--threads=2") as (plane, control),
        contextlib.AsyncExitStack() as stack,
    ):
        control.pause()
        raws = [await stack.enter_async_context(plane.reader()) for _ in range(1_500)]
        for raw in raws:
            raw.send(PAGE)
        hearing = [asyncio.create_task(raw.read_all()) for raw in raws]
        done, others = await asyncio.wait(hearing, return_when=asyncio.FIRST_COMPLETED)
        assert {Response.of(task.result()).status for task in done} == {503}
        for task in others:
            task.cancel()
        await asyncio.wait(others)


async def test_those_that_wait_for_a_control_plane_that_dies_are_asked_to_come_back(
    tmp_path: Path,
) -> None:
    async with (
        driven(tmp_path, "--threads=1") as (plane, control),
        contextlib.AsyncExitStack() as stack,
    ):
        control.pause()
        raws = [await stack.enter_async_context(plane.reader()) for _ in range(1_500)]
        for raw in raws:
            raw.send(PAGE)
        hearing = [asyncio.create_task(raw.read_all()) for raw in raws]
        # The first reader that is refused finds as many waiting as there may be.
        await asyncio.wait(hearing, return_when=asyncio.FIRST_COMPLETED)
        control.leave()
        answers = await asyncio.gather(*hearing, return_exceptions=True)
        # Requests in the dead one's socket are lost with it; no reader is left waiting.
        told_so = [a for a in answers if isinstance(a, bytes) and a.startswith(b"HTTP/1.1 503")]
        assert len(told_so) > 1_024


async def test_a_request_after_many_of_ours_on_one_connection(tmp_path: Path) -> None:
    async with driven(tmp_path) as (plane, control), plane.reader() as raw:
        raw.send(GREETING * 200 + PAGE)
        passed, _ = await asyncio.wait_for(control.handed.get(), 60)
        with passed:
            assert passed.recv(4096) == PAGE
        answers = await raw.read_all()
        assert answers.count(b"Welcome to SockJS!\n") == 200


async def test_who_asks_without_end_and_never_reads_is_dropped(tmp_path: Path) -> None:
    async with driven(tmp_path) as (plane, control), plane.reader(receive_buffer=4096) as raw:
        for _ in range(40):
            raw.send(GREETING * 1_000)
        await control.until_counter("abandoned", 1)


async def test_sessions_work_whatever_thread_took_the_request(tmp_path: Path) -> None:
    async with opened_box("native", native=gateway_settings(native={"threads": 4}).native) as box:
        session = "/sockjs/000/many"
        opened = await box.request("POST", f"{session}/xhr")
        assert opened.body == b"o\n"
        for number in range(40):
            verb = b'["{\\"action\\":\\"ping\\",\\"ref\\":%d}"]' % number
            sent = await box.request("POST", f"{session}/xhr_send", verb)
            assert sent.status == 204
            heard = await box.request("POST", f"{session}/xhr")
            assert heard.body == b'a["{\\"type\\":\\"pong\\",\\"ref\\":%d}"]\n' % number


async def test_a_body_that_never_ends_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway.run.app, "_IDLE_SECONDS", 0.3)
    async with opened_box("native") as box, box.opened() as raw:
        raw.send(b"POST /sockjs/0/a/xhr_send HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n[")
        with contextlib.suppress(ConnectionError):
            await raw.read_all()
