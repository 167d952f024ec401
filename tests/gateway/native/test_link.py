"""An attachment: messages and descriptors over a unix socket."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import uvloop
from descriptors import Descriptors
from fake_dataplane import Visit, event, handover, published

from gateway.native import commands
from gateway.native.events import Event, HandoverEvent, PublishedEvent
from gateway.native.link import FULL_BYTES, ControlLink, connected
from gateway.native.table import MAX_MESSAGE


class End:
    """A link, the events that it reported, and the other end."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        ours.setblocking(False)
        theirs.setblocking(False)
        self.other = Visit(theirs)
        self.heard: list[tuple[Event, int | None]] = []
        self.lost = asyncio.get_running_loop().create_future()
        self._came = asyncio.Event()
        self.link = ControlLink(ours, self._on_event, self.lost.set_result)

    def _on_event(self, event: Event, descriptor: int | None) -> None:
        self.heard.append((event, descriptor))
        self._came.set()

    async def hear(self, count: int) -> list[tuple[Event, int | None]]:
        async with asyncio.timeout(60):
            while len(self.heard) < count:
                self._came.clear()
                await self._came.wait()
        return self.heard


@pytest.fixture
async def end() -> AsyncIterator[End]:
    end = End()
    yield end
    end.link.close()
    end.other.leave()


async def test_commands_arrive_in_their_order(end: End) -> None:
    end.link.send(commands.hello())
    for number in range(3):
        end.link.send(commands.remember(bytes((number,))))
    await end.other.hear_named("hello")
    assert [(await end.other.hear()).fields["blob"] for _ in range(3)] == [b"\0", b"\1", b"\2"]


async def test_more_than_the_kernel_takes_waits_and_arrives_whole(end: End) -> None:
    for number in range(8):
        end.link.send(commands.remember(bytes((number,)) * (1 << 20)))
    got = [(await end.other.hear()).fields["blob"] for _ in range(8)]
    assert [(blob[0], len(blob)) for blob in got] == [(n, 1 << 20) for n in range(8)]
    end.link.send(commands.count())
    assert (await end.other.hear()).name == "count"


async def test_events_are_reported(end: End) -> None:
    await end.other.send_events(published(1) + published(2))
    assert await end.hear(2) == [(PublishedEvent(1), None), (PublishedEvent(2), None)]


async def test_each_handover_takes_the_next_descriptor(end: End) -> None:
    pipes = [os.pipe() for _ in range(2)]
    end.other.hand_over(handover("192.0.2.1")[:1], pipes[0][0])
    await end.other.send_events(handover("192.0.2.1")[1:])
    end.other.hand_over(published(1) + handover("192.0.2.2"), pipes[1][0])
    heard = await end.hear(3)
    assert [e for e, _ in heard] == [
        HandoverEvent("192.0.2.1"),
        PublishedEvent(1),
        HandoverEvent("192.0.2.2"),
    ]
    for (_, descriptor), (read, write) in zip([heard[0], heard[2]], pipes, strict=True):
        assert descriptor is not None
        assert os.fstat(descriptor).st_ino == os.fstat(read).st_ino
        assert not os.get_inheritable(descriptor)
        for open_ in (descriptor, read, write):
            os.close(open_)


async def test_a_descriptor_that_there_is_no_room_for_costs_its_own_request(end: End) -> None:
    pipes = [os.pipe() for _ in range(3)]
    with Descriptors.bounded() as descriptors:
        descriptors.allow_none()
        for number, (read, _) in enumerate(pipes[:2]):
            end.other.hand_over(handover(f"192.0.2.{number}"), read)
        end.other.hand_over(published(1))
        heard = await end.hear(3)
    end.other.hand_over(published(2) + handover("192.0.2.2"), pipes[2][0])
    heard = await end.hear(5)
    assert [e for e, _ in heard if isinstance(e, PublishedEvent)] == [
        PublishedEvent(1),
        PublishedEvent(2),
    ]
    came = {e.address: descriptor for e, descriptor in heard if isinstance(e, HandoverEvent)}
    last = came.pop("192.0.2.2")
    assert came == {"192.0.2.0": None, "192.0.2.1": None}
    assert last is not None
    assert os.fstat(last).st_ino == os.fstat(pipes[2][0]).st_ino
    assert not end.lost.done()
    for open_ in (last, *(end for pipe in pipes for end in pipe)):
        os.close(open_)


async def test_descriptors_that_nobody_took_are_closed(end: End) -> None:
    read, write = os.pipe()
    end.other.hand_over(handover()[:3], read)
    os.close(read)
    await end.other.send_events(b"")
    await asyncio.sleep(0)
    end.link.close()
    with pytest.raises(BrokenPipeError):
        os.write(write, b"x")
    os.close(write)


@pytest.mark.parametrize(
    "data", [bytes(4), event(1, b""), (MAX_MESSAGE + 1).to_bytes(4, "little"), handover()],
    ids=["empty", "unknown", "endless", "without a descriptor"],
)  # fmt: skip
async def test_garbage_ends_the_link(end: End, data: bytes) -> None:
    await end.other.send_events(data)
    assert await asyncio.wait_for(end.lost, 60)
    assert end.link.closed
    end.link.send(commands.count())


async def test_the_end_of_the_other_end_is_reported_once(end: End) -> None:
    end.other.leave()
    assert await asyncio.wait_for(end.lost, 60) == "it has closed the link"


def test_its_last_events_are_read_though_nothing_can_be_written_any_more() -> None:
    """A newer control plane ends the older attachment while a reader's request is on its way."""

    async def run() -> None:
        end = End()
        read, write = os.pipe()
        end.other.hand_over(published(1) + handover("192.0.2.1"), read)
        end.other.leave()
        end.link.send(commands.count())
        assert await asyncio.wait_for(end.lost, 60) == "[Errno 32] Broken pipe"
        (_, nothing), (request, descriptor) = end.heard
        assert (nothing, request) == (None, HandoverEvent("192.0.2.1"))
        assert descriptor is not None
        assert os.fstat(descriptor).st_ino == os.fstat(read).st_ino
        for open_ in (descriptor, read, write):
            os.close(open_)

    # It writes before it reads the bytes that arrived meanwhile; uvloop reads first.
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        runner.run(run())


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_the_end_of_one_that_left_something_unread_is_reported(new_loop) -> None:
    async def run() -> None:
        end = End()
        end.link.send(commands.count())
        await asyncio.sleep(0)
        await end.other.send_events(published(1))
        end.other.leave()
        assert await asyncio.wait_for(end.lost, 60) == "[Errno 104] Connection reset by peer"
        assert end.heard == [(PublishedEvent(1), None)]

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(run())


async def test_a_link_that_we_close_tells_nothing(end: End) -> None:
    end.link.close()
    await end.other.ended()
    assert not end.lost.done()


async def test_a_full_link_says_when_there_is_room_again() -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    room = 0

    def on_room() -> None:
        nonlocal room
        room += 1

    link = ControlLink(ours, lambda *_: None, lambda _: None, on_room)
    commands = [bytes([number % 251]) * 100_000 for number in range(2 * FULL_BYTES // 100_000)]
    for command in commands:
        link.send(command)
    assert link.full
    got = bytearray()
    with theirs:
        while len(got) < sum(map(len, commands)):
            with contextlib.suppress(BlockingIOError):
                got += theirs.recv(1 << 20)
            await asyncio.sleep(0)
        assert got == b"".join(commands)
        assert (room, link.full) == (1, False)
        link.close()


def test_a_data_plane_that_accepts_nobody_keeps_nobody_waiting(tmp_path: Path) -> None:
    path = tmp_path / "control"
    with contextlib.ExitStack() as stack:
        frozen = stack.enter_context(socket.socket(socket.AF_UNIX))
        frozen.bind(str(path))
        frozen.listen(0)
        # Linux allows one more connection than the backlog says.
        stack.enter_context(connected(path))
        with pytest.raises(BlockingIOError):
            connected(path)
