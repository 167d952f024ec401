"""A play: the actions of several readers and a router, as values; and each reader's received data.

The same play is performed on a gateway of each engine (tests/gateway/test_engines_agree.py). Each
step ends with a fence for every connected reader: a push that is known to come last. So all that
was received belongs to a step, and the play waits for nothing that may never be sent.

Received data is compared as it was sent, except where engines may differ: in how pushes are put
into frames (one by one or several at once), whether a frame is compressed, the time in positions,
and whether a replayed message has one. Pushes and pongs each have their order; the order between
the two isn't promised.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import zlib
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final, Literal

from envelopes import envelope
from gateways import Box, RawSocket

from gateway.wire import position
from gateway.wire.frames import CLOSE, PONG, TEXT
from newsfabric.messages.control import Tick, encode_tick
from newsfabric.messages.envelope import Envelope, encode, id_of
from newsfabric.store.logs import DirectoryRow
from newsfabric.store.rules import clock_ms
from newsfabric.topics import TopicPolicy, TopicTable

Kind = Literal["raw", "deflate", "sockjs"]

# Each play has its own topics: %s is its number.
TOPICS: Final = ("news.%s", "live.%s", "late.%s", "none.%s")
CLOSED_TOPICS: Final = ("user.me", "user.%s", "other.%s", "news.*", "")
TABLE: Final = TopicTable(
    [
        TopicPolicy(pattern="fence.*", keep=0),
        TopicPolicy(pattern="news.*", topic_class="gold", keep=3, slow="disconnect"),
        TopicPolicy(pattern="live.*", keep=5, slow="conflate"),
        TopicPolicy(pattern="late.*", keep=2, latest=True),
        TopicPolicy(
            pattern="none.*", topic_class="bronze", keep=0, slow="drop_oldest", latest=True
        ),
        TopicPolicy(pattern="user.*", access="owner"),
    ]
)
_PATHS: Final[dict[Kind, str]] = {
    "raw": "/websocket",
    "deflate": "/websocket",
    "sockjs": "/sockjs/0/play/websocket",
}
_HOUR_MS: Final = 3_600_000
_numbers: Final = itertools.count(1)


@dataclasses.dataclass(frozen=True)
class PlayedMessage:
    """A message of a reader: ``verb``, cut into fragments.

    In the verb, %s is replaced by the play's number, and #0 to #9 by the ids of the newest
    messages.

    ``between`` are control frames, sent after the first fragment. In a SockJS session the verb
    is sent as a string in an array, or with ``bare`` as it is.
    """

    verb: str
    cuts: tuple[int, ...] = ()
    between: tuple[tuple[int, bytes], ...] = ()
    opcode: int = TEXT
    compress: bool = False
    bare: bool = False


@dataclasses.dataclass(frozen=True)
class Connect:
    """A reader connects. ``cuts``: places where its request is cut."""

    reader: int
    kind: Kind
    cuts: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True)
class Send:
    """A reader sends messages at once, cut anywhere."""

    reader: int
    messages: tuple[PlayedMessage, ...]
    cuts: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True)
class Break:
    """A reader sends bytes for which it must be closed, whatever follows."""

    reader: int
    data: bytes
    cuts: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True)
class Goodbye:
    """A reader closes, with this payload of the close frame."""

    reader: int
    payload: bytes
    cuts: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True)
class Vanish:
    """A reader disappears, perhaps in the middle of a frame."""

    reader: int
    data: bytes
    reset: bool


@dataclasses.dataclass(frozen=True)
class Publish:
    """A message is routed: stored, then sent to the box ``copies`` times.

    All but the first are copies made by another router.
    """

    topic: int
    size: int
    key: str | None = None
    version: int | None = None
    expires: Literal["never", "long ago", "one day"] = "never"
    copies: int = 1


@dataclasses.dataclass(frozen=True)
class Again:
    """An earlier message is sent again; ``back`` counts from the newest."""

    back: int


@dataclasses.dataclass(frozen=True)
class TickOf:
    """A tick of the router, which has given out ``ahead`` more numbers."""

    ahead: int


Step = Connect | Send | Break | Goodbye | Vanish | Publish | Again | TickOf


@dataclasses.dataclass(frozen=True)
class Past:
    """A message that the store has before the play begins."""

    topic: int
    size: int
    key: str | None
    version: int | None
    hours_ago: int


@dataclasses.dataclass(frozen=True)
class Play:
    """The messages of the past, and the steps."""

    past: tuple[Past, ...]
    steps: tuple[Step, ...]


@dataclasses.dataclass
class Seen:
    """All that one reader received in one step."""

    reader: int
    pushes: list[Any] = dataclasses.field(default_factory=list)
    pongs: list[bytes] = dataclasses.field(default_factory=list)
    # The handshake's status, the close frame's payload, SockJS's own, the end of the stream.
    others: list[Any] = dataclasses.field(default_factory=list)


async def performed(play: Play, boxes: Sequence[Box]) -> list[list[Seen]]:
    """Perform the play on each box; return for each all that its readers received."""
    number, start_ms = next(_numbers), clock_ms()
    seen = []
    for box in boxes:
        async with _stage(box, number, start_ms) as stage:
            seen.append(await stage.perform(play))
    return seen


@contextlib.asynccontextmanager
async def _stage(box: Box, number: int, start_ms: int) -> AsyncIterator[_Stage]:
    async with contextlib.AsyncExitStack() as stack:
        stage = _Stage(box, number, start_ms, stack)
        yield stage
        stage.end_logs()


class _Stage:
    """A performance. Its names follow from the play's number: all performances have the same."""

    def __init__(
        self, box: Box, number: int, start_ms: int, stack: contextlib.AsyncExitStack
    ) -> None:
        self.box = box
        self.name = str(number)
        self._start_ms = start_ms
        self._stack = stack
        self._readers: dict[int, _Reader] = {}
        self._published: list[Envelope] = []
        # Older than the ended logs that a position lists.
        self._epoch = start_ms - 7 * _HOUR_MS
        self._last_seq = 0
        self._other_seqs = itertools.count(1)
        self._fences = itertools.count(1)

    async def perform(self, play: Play) -> list[Seen]:
        old = [self._past(*one) for one in enumerate(play.past)]
        await self.box.store.write(sorted(old, key=lambda one: one.id))
        seen: list[Seen] = []
        for step in play.steps:
            seen += await self._take(step)
        for reader in self._readers.values():
            seen.append(await reader.leave(b"\x03\xe8"))
        return seen

    def end_logs(self) -> None:
        """End the play's logs, so that positions of later plays needn't list them."""
        logs = self.box.gateway.core.hub.logs
        for known in [one for one in logs if one.extent.ended is None]:
            row = DirectoryRow(known.log, 1 << 30, known.mark, ended=known.mark)
            logs.learn(row, now=known.last_report_at)
        logs.directory_read(clock_ms(), now=self.box.gateway.core.clock())

    async def _take(self, step: Step) -> list[Seen]:
        if isinstance(step, Publish | Again | TickOf):
            await self._route(step)
            mark = self._fence()
            return [await reader.hear_fence(mark) for reader in self._readers.values()]
        if isinstance(step, Connect):
            if step.reader in self._readers:
                return []
            return [await self._connect(step)]
        reader = self._readers.get(step.reader)
        if reader is None:
            return []
        if isinstance(step, Send):
            seen = await reader.send_step(step)
        else:
            del self._readers[step.reader]
            seen = await self._end(reader, step)
        return [] if seen is None else [seen]

    async def _connect(self, step: Connect) -> Seen:
        raw = await self._stack.enter_async_context(self.box.opened())
        reader = _Reader(raw, step, self.name, self._published)
        seen = await reader.connect(step.cuts)
        self._readers[step.reader] = reader
        return seen

    async def _end(self, reader: _Reader, step: Break | Goodbye | Vanish) -> Seen | None:
        if isinstance(step, Vanish):
            reader.vanish(step)
            return None
        if isinstance(step, Goodbye):
            return await reader.leave(step.payload, step.cuts)
        reader.send(step.data, step.cuts)
        return await reader.hear_end()

    async def _route(self, step: Publish | Again | TickOf) -> None:
        if isinstance(step, TickOf):
            self.box.send(encode_tick(self._tick(step)))
        elif isinstance(step, Again):
            if self._published:
                self._send(self._published[-1 - step.back % len(self._published)])
        else:
            made = self._made(step)
            await self.box.store.write([made])
            self._published.append(made)
            self._send(made)
            for copy in range(1, step.copies):
                # Not so old that the gateway looks it up first.
                ms = self._start_ms - 100_000 + copy
                other = {
                    "router": f"other-{self.name}",
                    "seq": next(self._other_seqs),
                    "id": id_of(ms, made.identity),
                }
                self._send(dataclasses.replace(made, **other))

    def _tick(self, step: TickOf) -> Tick:
        return Tick(
            origin="oregon",
            router=f"router-{self.name}",
            epoch=self._epoch,
            seq=self._last_seq + step.ahead,
            sent_ms=self._next_ms(),
        )

    def _fence(self) -> str:
        """Send a message to all readers; the feed keeps the order, so it arrives last."""
        mark = f"fence {next(self._fences)}"
        self._send(self._envelope(f"fence.{self.name}", self._next_ms(), json.dumps(mark)))
        return mark

    def _send(self, one: Envelope) -> None:
        self.box.send(encode(one))

    def _made(self, step: Publish) -> Envelope:
        expires = {"never": None, "long ago": 1, "one day": self._start_ms + 24 * _HOUR_MS}
        return self._envelope(
            TOPICS[step.topic] % self.name,
            self._next_ms(),
            _body(len(self._published), step.size),
            key=step.key,
            version=step.version,
            expires_ms=expires[step.expires],
        )

    def _past(self, number: int, one: Past) -> Envelope:
        ms = self._start_ms - one.hours_ago * _HOUR_MS - 660_000 + number
        made = envelope(
            number + 1,
            topic=TOPICS[one.topic] % self.name,
            message_id=f"{self._start_ms}-{self.name}-past-{number}",
            body=_body(-number, one.size).encode(),
            # Its log began long before the gateway, and isn't in the directory any more.
            router=f"past-{self.name}",
            epoch=1,
            key=one.key,
            version=one.version,
        )
        return dataclasses.replace(made, id=id_of(ms, made.identity), published_ms=ms)

    def _envelope(self, topic: str, ms: int, body: str, **fields: Any) -> Envelope:
        self._last_seq += 1
        made = envelope(
            self._last_seq,
            topic=topic,
            message_id=f"{self._start_ms}-{self.name}-{self._last_seq}",
            body=body.encode(),
            router=f"router-{self.name}",
            epoch=self._epoch,
            **fields,
        )
        return dataclasses.replace(made, id=id_of(ms, made.identity), published_ms=ms)

    def _next_ms(self) -> int:
        return self._start_ms + 1 + len(self._published)


def _body(number: int, size: int) -> str:
    """Return text of every kind: escaped in JSON or SockJS or not, compressible or not."""
    text = f'{number} \u2028\U0001f600é"\\/' + "news " * (size // 5)
    return json.dumps({"text": text}, ensure_ascii=False)


class _Reader:
    """A reader that records all it receives."""

    def __init__(self, raw: RawSocket, step: Connect, play: str, published: list[Envelope]) -> None:
        self._raw = raw
        self._number = step.reader
        self._kind = step.kind
        self._play = play
        self._published = published
        self._deflates = False
        self._fences = itertools.count(1)

    async def connect(self, cuts: tuple[int, ...]) -> Seen:
        head = (
            f"GET {_PATHS[self._kind]} HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\n"
            "Connection: keep-alive, Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        )
        if self._kind == "deflate":
            head += "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n"
        self.send(head.encode() + b"\r\n", cuts)
        answer = (await self._raw.read_until(b"\r\n\r\n")).lower()
        self._deflates = b"permessage-deflate" in answer
        seen = Seen(self._number, others=[answer.split(b"\r\n")[0]])
        if self._kind == "sockjs":
            seen.others.append(await self._raw.read_frame())
        subscribe = PlayedMessage('{"action":"subscribe","topic":"fence.%s"}')
        self.send(self._bytes(subscribe), ())
        await self._hear_verbs(seen)
        return seen

    async def send_step(self, step: Send) -> Seen:
        self.send(b"".join(map(self._bytes, step.messages)), step.cuts)
        seen = Seen(self._number)
        await self._hear_verbs(seen)
        for push in seen.pushes:
            self._without_origin(push)
        return seen

    async def hear_fence(self, mark: str) -> Seen:
        """Read up to the publication ``mark``, and the answers after it."""
        seen = Seen(self._number)
        await self._hear(seen, lambda push: push.get("body") == mark)
        await self._hear_verbs(seen)
        return seen

    async def leave(self, payload: bytes, cuts: tuple[int, ...] = ()) -> Seen:
        self.send(frame(0x80 | CLOSE, payload), cuts)
        return await self.hear_end()

    async def hear_end(self) -> Seen:
        seen = Seen(self._number)
        await self._hear(seen, lambda push: False)
        return seen

    def vanish(self, step: Vanish) -> None:
        self._raw.send(step.data)
        if step.reset:
            self._raw.reset()

    def send(self, data: bytes, cuts: tuple[int, ...]) -> None:
        """Send ``data`` in pieces, each in a write of its own."""
        for start, end in itertools.pairwise(_edges(len(data), cuts)):
            self._raw.send(data[start:end])

    async def _hear_verbs(self, seen: Seen) -> None:
        """Read up to the answer to a verb that is sent now: answers keep the order."""
        ref = f"fence {next(self._fences)}"
        self.send(self._bytes(PlayedMessage(json.dumps({"action": "ping", "ref": ref}))), ())
        await self._hear(seen, lambda push: push == {"type": "pong", "ref": ref})
        # Fences, which all readers get, are no part of the play.
        fence = f"fence.{self._play}"
        seen.pushes = [push for push in seen.pushes if push.get("topic") != fence]

    @staticmethod
    def _without_origin(push: Any) -> None:
        """Remove positions: only messages replayed from memory have one; engines differ there."""
        for message in [push, *push.get("messages", [])]:
            if message["type"] == "message":
                message.pop("position")

    async def _hear(self, seen: Seen, is_last: Any) -> None:
        while True:
            try:
                first, payload = await self._raw.read_frame()
            except EOFError as exc:
                seen.others.append(("end", *exc.args))
                return
            except ConnectionError as exc:
                seen.others.append(type(exc).__name__)
                return
            except TimeoutError as exc:
                raise AssertionError(f"reader {self._number} waits in vain: {seen}") from exc
            if first == 0xC1:
                first, payload = 0x81, _inflated(payload)
            if first == 0x80 | PONG:
                seen.pongs.append(payload)
                continue
            if first != 0x80 | TEXT or (texts := self._texts(payload)) is None:
                seen.others.append((first, payload))
                continue
            for text in texts:
                push = json.loads(text)
                if is_last(push):
                    assert text is texts[-1], "something came after what comes last"
                    return
                seen.pushes.append(_without_time(push))

    def _texts(self, payload: bytes) -> list[str] | None:
        """Return the pushes in a text frame; None if it is another kind of SockJS frame."""
        if self._kind != "sockjs":
            return [payload.decode()]
        return json.loads(payload[1:]) if payload[:1] == b"a" else None

    def _put_in(self, verb: str) -> str:
        verb = verb.replace("%s", self._play)
        for back, one in enumerate(reversed(self._published[-10:])):
            verb = verb.replace(f'"#{back}"', f'"{one.id}"')
        return verb

    def _bytes(self, message: PlayedMessage) -> bytes:
        text = self._put_in(message.verb)
        if self._kind == "sockjs" and not message.bare:
            text = json.dumps([text], ensure_ascii=message.compress)
        payload, reserved = text.encode("utf-8", "surrogatepass"), 0
        if message.compress and self._deflates:
            payload, reserved = _deflated(payload), 0x40
        edges = _edges(len(payload), message.cuts)
        parts = [payload[a:b] for a, b in itertools.pairwise(edges)]
        frames = []
        for at, part in enumerate(parts):
            first = (message.opcode | reserved if at == 0 else 0) | (
                0x80 if at == len(parts) - 1 else 0
            )
            frames.append(frame(first, part))
        between = [frame(0x80 | opcode, payload) for opcode, payload in message.between]
        return b"".join([frames[0], *between, *frames[1:]])


def _edges(size: int, cuts: tuple[int, ...]) -> list[int]:
    # Equal cuts make empty fragments; between writes they have no effect.
    return [0, *sorted(cut % (size + 1) for cut in cuts), size]


def frame(first: int, payload: bytes) -> bytes:
    """Encode a masked frame, complete whatever its first byte claims."""
    size = len(payload)
    length = bytes((0x80 | size,)) if size < 126 else b"\xfe" + size.to_bytes(2, "big")
    mask = (size * 2654435761 % (1 << 32)).to_bytes(4, "big")
    masked = bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload))
    return bytes((first,)) + length + mask + masked


def _deflated(payload: bytes) -> bytes:
    """Compress as in RFC 7692 section 7.2.1."""
    deflate = zlib.compressobj(wbits=-15)
    data = deflate.compress(payload) + deflate.flush(zlib.Z_SYNC_FLUSH)
    return data.removesuffix(b"\0\0\xff\xff")


def _inflated(payload: bytes) -> bytes:
    return zlib.decompressobj(wbits=-15).decompress(payload + b"\0\0\xff\xff")


def _without_time(push: dict[str, Any]) -> dict[str, Any]:
    """Return ``push`` with only its position's numbers of logs, without times."""
    made = dict(push)
    if isinstance(push.get("position"), str):
        listed = position.decode(push["position"]).listed
        made["position"] = {hash_: one.mark for hash_, one in listed.items()}
    if "messages" in push:
        made["messages"] = [_without_time(one) for one in push["messages"]]
    return made
