"""The data plane's readers, as the desk knows them.

Nothing is kept of a reader: whoever asked is a handle in the answer, and who it is came with its
verb, as its auth state. Each verb gets exactly one answer. If the attachment that it came by has
ended it gets none, and comes again with the next one.

A page's readers come back together and say the same, ten thousand of them. So who says the same in
the same moment is answered as one. A text, its ``ref`` included, is read once, and its answer is
made once for as long as nothing has changed. What is replayed is sent with the answer to the first
reader who is given it, since most are the only one; from the second on it is a batch, which the
data plane keeps, whatever else their verbs say.
"""

from __future__ import annotations

import collections
import dataclasses
import logging
import weakref
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import orjson

from gateway.access import ANONYMOUS, AuthState, decode_auth
from gateway.bounded import BoundedMap
from gateway.core import Core
from gateway.desk import Found, Pending
from gateway.native import commands
from gateway.native.plane import Plane
from gateway.native.wire import CONNECTION_BYTES, Connections
from gateway.protocol import (
    History,
    Intent,
    LogIn,
    Ping,
    Refusal,
    SetMark,
    Subscribe,
    Subscribed,
    Unsubscribe,
    subscribed_push,
)
from gateway.publication import Publication
from gateway.recalled import Recalled
from newsfabric.closing import INTERNAL, CloseReason

logger = logging.getLogger(__name__)

# A text of a page, with a position and a ref, has 100 to 200 bytes.
SHORT: Final = 256
# The objects around a text and its answer.
_OVERHEAD: Final = 2_048
# A thousand and more texts with their answers.
MOST_BYTES: Final = 4 << 20


@dataclasses.dataclass(slots=True)
class Said:
    """What ``text`` means, and the last answer, if it is a subscribe that others may say too.

    ``answer`` is the one that was sent last: it tells readers ``told``, and names the ``batch`` of
    what is replayed; 0 if nothing is. The replay is not kept alive here.
    """

    text: bytes
    intent: Intent
    told: Subscribed | None = None
    answer: bytes = b""
    batch: int = 0
    replay: Callable[[], Recalled | None] | None = None

    def replays(self, replay: Recalled) -> bool:
        """Whether the last answer was made with ``replay`` too."""
        return self.replay is not None and self.replay() is replay

    def note(self, replay: Recalled, told: Subscribed, batch: int, answer: bytes) -> None:
        """The last answer; empty if it holds the messages themselves, and isn't kept."""
        self.replay, self.told = weakref.ref(replay), told
        self.batch, self.answer = batch, answer


class Sayings(BoundedMap[bytes, Said]):
    """What the texts mean that were said last; together about ``most_bytes`` at most.

    One reader can make up as many texts as it likes: what was said longest ago goes first. A text
    is kept only if it is short, and its answer only if it carries no messages: those are the data
    plane's (as a batch) or :mod:`gateway.resume`'s, each with a bound of its own.
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        super().__init__(most_bytes // _OVERHEAD, most_bytes)

    def find(self, text: bytes) -> Said | None:
        """What ``text`` means, if that is remembered; it counts as said now."""
        found = self.get(text)
        if found is not None:
            self.touch(text)
        return found

    def keep(self, said: Said) -> None:
        """Remember what a text means, unless it is too long."""
        if len(said.text) <= SHORT:
            self.set(said.text, said, len(said.text) + len(said.answer) + _OVERHEAD)

    def weigh(self, said: Said) -> None:
        """The answer has changed: if the text is remembered, note what it takes now."""
        if self.get(said.text) is said:
            self.keep(said)


class NativeReaders:
    """Has the desk answer what the readers of one data plane say."""

    def __init__(self, core: Core, plane: Plane) -> None:
        self.plane = plane
        self._replay_bytes = core.settings.replay_bytes
        self._table = core.table
        self._desk = core.desk
        self._spawn = core.spawn
        self._verbs = core.readers.verbs
        self._said = Sayings()
        # Numbers of batches: those that the data plane has, of what was replayed, and the last one.
        self._kept: collections.deque[int] = collections.deque(maxlen=commands.MOST_BATCHES)
        self._batch_of: weakref.WeakKeyDictionary[Recalled, int] = weakref.WeakKeyDictionary()
        self._batches = 0

    def answer(self, connections: Connections, auth: bytes, text: bytes) -> None:
        """Readers with ``auth`` have said ``text``."""
        said = self._said.find(text) or self._learn(text)
        # Of those who log in each tries, and each try counts.
        step = CONNECTION_BYTES if isinstance(said.intent, LogIn) else len(connections)
        for at in range(0, len(connections), step):
            reader = NativeReader(self, connections[at : at + step], auth, said)
            self._decide(reader, said.intent)

    def _decide(self, reader: NativeReader, intent: Intent) -> None:
        try:
            pending = self._desk.decide(reader, intent)
        except Exception:
            logger.exception("a verb can't be answered: its reader has to come again")
            reader.close(INTERNAL)
            return
        if pending is not None:
            self._spawn(self._finish(reader, pending))

    async def _finish(self, reader: NativeReader, pending: Pending) -> None:
        """Await an answer; a reader that gets none would wait for ever."""
        try:
            await pending
        except Exception:
            reader.close(INTERNAL)
            # It is logged as that of any task.
            raise

    def attached(self) -> None:
        """An attachment has begun: it has none of the batches of the one before."""
        self._said.clear()
        self._batch_of.clear()
        self._kept.clear()

    def subscribed(
        self, said: Said, verb: Subscribe, told: Subscribed, replay: Recalled, many: int
    ) -> bytes:
        """The answer of so ``many`` readers to ``said``, a subscribe; for any connections."""
        is_same = said.replays(replay) and said.told == told
        if is_same and said.answer and (not said.batch or said.batch in self._kept):
            return said.answer
        messages = replay.that_fit(self._replay_bytes)
        batch = self._batch(verb.topic, replay, messages, many) if messages else 0
        alone = [] if batch else messages
        answer = commands.subscription(
            verb.topic,
            self._table.known(verb.topic),
            batch=batch,
            seen=not replay.is_ahead,
            ref=b"" if verb.ref is None else orjson.dumps(verb.ref),
            push=subscribed_push(verb, told),
            messages=alone,
        )
        said.note(replay, told, batch, b"" if alone else answer)
        self._said.weigh(said)
        return answer

    def _batch(
        self, topic: str, replay: Recalled, messages: Sequence[Publication], many: int
    ) -> int:
        """The batch with these; 0 for the first reader who gets them: most are the only one."""
        number = self._batch_of.get(replay, None if many == 1 else 0)
        if number is None:
            self._batch_of[replay] = number = 0
        elif number not in self._kept:
            self._batches = number = self._batches + 1
            self.plane.send(commands.batch(number, topic, self._table.known(topic), messages))
            self._kept.append(number)
            self._batch_of[replay] = number
        return number

    def _learn(self, text: bytes) -> Said:
        said = Said(text, self._verbs.read(text))
        if self._is_said_by_many(said.intent):
            self._said.keep(said)
        return said

    def _is_said_by_many(self, intent: Intent) -> bool:
        """A token, and what is about a topic of one's own, is nobody else's business."""
        match intent:
            case Subscribe() | History():
                return self._table.known(intent.topic).access != "owner"
            case Unsubscribe() | Ping() | Refusal():
                return True
            case LogIn() | SetMark():
                return False


class NativeReader:
    """One reader of the data plane, or those who say the same, until they are answered
    (:class:`gateway.desk.Port`)."""

    __slots__ = ("_attachment", "_auth", "_connections", "_readers", "_said", "many")

    def __init__(
        self, readers: NativeReaders, connections: Connections, auth: bytes, said: Said
    ) -> None:
        self.many = len(connections) // CONNECTION_BYTES
        self._readers = readers
        self._connections = connections
        self._auth = auth
        self._said = said
        self._attachment = readers.plane.attachment

    @property
    def auth(self) -> AuthState:
        """Who it is; anonymous if another release made its auth state: it has to log in again."""
        try:
            return decode_auth(self._auth)
        except ValueError:
            return ANONYMOUS

    async def room_for(self, read: Callable[[], Awaitable[Found]]) -> Found:
        """What ``read`` finds when the data plane has taken enough of what it was sent before, or
        there is no attachment. It holds only until something else arrives.

        A crowd that has waited for one read finds no room for all at once.
        """
        room = self._readers.plane.room
        while True:
            await room.wait()
            found = await read()
            if not room.is_full():
                return found

    def clash(self, verb: Subscribe) -> Refusal | None:
        """The data plane knows its topics, and refuses."""

    def push(self, push: bytes) -> None:
        """Answer with ``push``."""
        self._send(commands.reply(self._connections, push))

    def subscribe(self, verb: Subscribe, told: Subscribed, replay: Recalled) -> None:
        """Answer ``verb``; the data plane refuses those who can't have the topic."""
        if self._attachment == self._readers.plane.attachment:
            answer = self._readers.subscribed(self._said, verb, told, replay, self.many)
            self._send(commands.subscribe(self._connections, answer))

    def unsubscribe(self, topic: str, push: bytes) -> None:
        """Take ``topic`` back from those who have it, and answer with ``push``."""
        self._send(commands.unsubscribe(self._connections, topic, push))

    def identify(self, auth: AuthState, push: bytes) -> None:
        """The data plane keeps ``auth`` until it ends; answer with ``push``."""
        self._send(commands.auth(self._connections, auth, push))

    def close(self, reason: CloseReason) -> None:
        """End the connections."""
        self._send(commands.close(self._connections, reason))

    def _send(self, command: bytes) -> None:
        if self._attachment == self._readers.plane.attachment:
            self._readers.plane.send(command)
