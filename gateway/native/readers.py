"""The data plane's readers, as the dispatcher sees them.

No state of a reader is kept: its connection is a handle for the answer, and its auth state came
with its verb. Each verb gets exactly one answer. If the attachment that brought it has ended, it
gets none, and is sent again to the next one.

A page's readers return together and send the same text, ten thousand of them. So readers who send
the same at the same moment are answered as one. A text, its ``ref`` included, is parsed once, and
its answer is made once for as long as nothing has changed. A replay is sent with the answer to the
first reader who is given it, since most replays have one reader. For the second and later readers
it is a batch, which the data plane keeps, whatever else their verbs contain.
"""

from __future__ import annotations

import collections
import dataclasses
import logging
import weakref
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import orjson

from gateway.answers.access import ANONYMOUS, AuthState, decode_auth
from gateway.answers.verb import Found, Pending
from gateway.answers.verbs import BY_VERB, Intent, Shared
from gateway.core.core import Core
from gateway.native import commands
from gateway.native.plane import Plane
from gateway.native.wire import CONNECTION_BYTES, Connections
from gateway.past.bounded import BoundedMap
from gateway.past.replay import Replay
from gateway.wire.protocol import Subscribed, VerbRefusal
from gateway.wire.publication import Publication
from newsfabric.closing import INTERNAL, CloseReason

logger = logging.getLogger(__name__)

# A text of a page, with a position and a ref, has 100 to 200 bytes.
SHORT: Final = 256
# Bytes of the objects around a text and its answer.
_OVERHEAD: Final = 2_048
# A thousand and more texts with their answers.
MOST_BYTES: Final = 4 << 20


@dataclasses.dataclass(slots=True)
class CachedVerb:
    """The meaning of ``text``, and the last answer, if it is a subscribe that others may send too.

    ``answer`` was sent last, with the content ``reply``. It names the ``batch`` of its replay; 0 if
    there is none. The replay is not kept alive here.
    """

    text: bytes
    intent: Intent
    reply: Subscribed | None = None
    answer: bytes = b""
    batch: int = 0
    replay: Callable[[], Replay | None] | None = None

    def replays(self, replay: Replay) -> bool:
        """Return whether the last answer was made with ``replay`` too."""
        return self.replay is not None and self.replay() is replay

    def note_answer(self, replay: Replay, reply: Subscribed, batch: int, answer: bytes) -> None:
        """Note the last answer; empty if it holds the messages themselves, and isn't kept."""
        self.replay, self.reply = weakref.ref(replay), reply
        self.batch, self.answer = batch, answer


class VerbCache(BoundedMap[bytes, CachedVerb]):
    """The meanings of recent texts; together about ``most_bytes`` at most.

    A reader can make up as many texts as it likes: the text sent longest ago is dropped first. A
    text is kept only if it is short, and its answer only if it carries no messages: those are kept
    by the data plane (as a batch) or :mod:`gateway.past.resume`, each with a bound of its own.
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        super().__init__(most_bytes // _OVERHEAD, most_bytes)

    def find(self, text: bytes) -> CachedVerb | None:
        """Return the meaning of ``text``, if it is kept; the text counts as sent now."""
        found = self.get(text)
        if found is not None:
            self.touch(text)
        return found

    def keep(self, cached: CachedVerb) -> None:
        """Keep the meaning of a text, unless the text is too long."""
        if len(cached.text) <= SHORT:
            self.set(cached.text, cached, len(cached.text) + len(cached.answer) + _OVERHEAD)

    def update_weight(self, cached: CachedVerb) -> None:
        """Note the new weight of a text whose answer has changed, if the text is kept."""
        if self.get(cached.text) is cached:
            self.keep(cached)


class NativeReaders:
    """The readers of one data plane, whose verbs the dispatcher answers."""

    def __init__(self, core: Core, plane: Plane) -> None:
        self.plane = plane
        self._replay_bytes = core.settings.replay_bytes
        self._table = core.table
        self._dispatcher = core.dispatcher
        self._spawn = core.spawn
        self._verbs = core.readers.verbs
        self._cache = VerbCache()
        # Numbers of batches: all that the data plane has, by replay, and the last one.
        self._kept: collections.deque[int] = collections.deque(maxlen=commands.MOST_BATCHES)
        self._batch_of: weakref.WeakKeyDictionary[Replay, int] = weakref.WeakKeyDictionary()
        self._batches = 0

    def answer(self, connections: Connections, auth: bytes, text: bytes) -> None:
        """Answer ``text`` from readers with ``auth``."""
        cached = self._cache.find(text) or self._learn(text)
        is_shared = _shared(cached.intent) != "nothing"
        step = len(connections) if is_shared else CONNECTION_BYTES
        for at in range(0, len(connections), step):
            reader = NativeReader(self, connections[at : at + step], auth, cached)
            self._decide(reader, cached.intent)

    def _decide(self, reader: NativeReader, intent: Intent) -> None:
        try:
            pending = self._dispatcher.decide(reader, intent)
        except Exception:
            logger.exception("a verb can't be answered: its reader has to come again")
            reader.close(INTERNAL)
            return
        if pending is not None:
            self._spawn(self._finish(reader, pending))

    async def _finish(self, reader: NativeReader, pending: Pending) -> None:
        """Await an answer, or close the reader: without an answer it would wait endlessly."""
        try:
            await pending
        except Exception:
            reader.close(INTERNAL)
            # The owner of all tasks logs it.
            raise

    def attached(self) -> None:
        """Forget all batches: a new attachment has none of the previous one's."""
        self._cache.clear()
        self._batch_of.clear()
        self._kept.clear()

    def subscribed(self, cached: CachedVerb, reply: Subscribed, replay: Replay, many: int) -> bytes:
        """Return the answer to ``cached``, a subscribe by ``many`` readers; for any connections."""
        is_same = cached.replays(replay) and cached.reply == reply
        if is_same and cached.answer and (not cached.batch or cached.batch in self._kept):
            return cached.answer
        messages = replay.newest_within(self._replay_bytes)
        batch = self._batch(reply.topic, replay, messages, many) if messages else 0
        alone = [] if batch else messages
        answer = commands.acceptance(
            reply.topic,
            self._table.known(reply.topic),
            batch=batch,
            seen=not replay.has_unpublished,
            ref=b"" if reply.ref is None else orjson.dumps(reply.ref),
            push=reply.push(),
            messages=alone,
        )
        cached.note_answer(replay, reply, batch, b"" if alone else answer)
        self._cache.update_weight(cached)
        return answer

    def _batch(self, topic: str, replay: Replay, messages: Sequence[Publication], many: int) -> int:
        """Return the batch of these; 0 for the first reader to get them: most are the only one."""
        number = self._batch_of.get(replay, None if many == 1 else 0)
        if number is None:
            self._batch_of[replay] = number = 0
        elif number not in self._kept:
            self._batches = number = self._batches + 1
            self.plane.send(commands.batch(number, topic, self._table.known(topic), messages))
            self._kept.append(number)
            self._batch_of[replay] = number
        return number

    def _learn(self, text: bytes) -> CachedVerb:
        cached = CachedVerb(text, self._verbs.parse(text))
        if self._is_shareable(cached.intent):
            self._cache.keep(cached)
        return cached

    def _is_shareable(self, intent: Intent) -> bool:
        """Return whether others may send the same: no token, nothing about a topic of one's own."""
        if _shared(intent) != "text":
            return False
        policy = self._table.find(intent.topic) if intent.topic else None
        return policy is None or policy.access != "owner"


def _shared(intent: Intent) -> Shared:
    return "text" if isinstance(intent, VerbRefusal) else BY_VERB[type(intent)].shared


class NativeReader:
    """A reader of the data plane, or several who send the same, until they are answered
    (:class:`gateway.answers.verb.Port`)."""

    __slots__ = ("_attachment", "_auth", "_cached", "_connections", "_readers", "reader_count")

    def __init__(
        self, readers: NativeReaders, connections: Connections, auth: bytes, cached: CachedVerb
    ) -> None:
        self.reader_count = len(connections) // CONNECTION_BYTES
        self._readers = readers
        self._connections = connections
        self._auth = auth
        self._cached = cached
        self._attachment = readers.plane.attachment

    @property
    def auth(self) -> AuthState:
        """The auth state; anonymous if another release made it: then the reader logs in again."""
        try:
            return decode_auth(self._auth)
        except ValueError:
            return ANONYMOUS

    async def read_when_room(self, read: Callable[[], Awaitable[Found]]) -> Found:
        """Return the result of ``read`` when the data plane has taken enough of the bytes sent
        before, or there is no attachment. The result holds only until something else arrives.

        A crowd that has waited for one read finds no room for all at once.
        """
        room = self._readers.plane.room
        while True:
            await room.wait()
            found = await read()
            if not room.is_full():
                return found

    def subscription_refusal(self, topic: str) -> VerbRefusal | None:
        """Return None: the data plane knows the reader's topics, and refuses by itself."""

    def push(self, push: bytes) -> None:
        """Answer with ``push``."""
        self._send(commands.reply(self._connections, push))

    def subscribe(self, reply: Subscribed, replay: Replay) -> None:
        """Answer with ``reply``; the data plane refuses readers who can't have the topic."""
        if self._attachment == self._readers.plane.attachment:
            answer = self._readers.subscribed(self._cached, reply, replay, self.reader_count)
            self._send(commands.subscribe(self._connections, answer))

    def unsubscribe(self, topic: str, push: bytes) -> None:
        """End the subscription to ``topic``, if there is one, and answer with ``push``."""
        self._send(commands.unsubscribe(self._connections, topic, push))

    def identify(self, auth: AuthState, push: bytes) -> None:
        """Have the data plane keep ``auth`` until it ends; answer with ``push``."""
        self._send(commands.auth(self._connections, auth, push))

    def close(self, reason: CloseReason) -> None:
        """End the connections."""
        self._send(commands.close(self._connections, reason))

    def _send(self, command: bytes) -> None:
        if self._attachment == self._readers.plane.attachment:
            self._readers.plane.send(command)
