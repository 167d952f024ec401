"""The readers of this process and their connections, the same for every transport.

A connection that starts to close leaves the hub at once: after that only the ``disconnect`` push
and the transport's goodbye are sent. It is gone when its transport is. Writing never raises and
never waits. A transport that takes no bytes now is *blocked*, and its frames are put into the
outbox. While it isn't blocked the outbox is empty, so a delivery is one call and one write.

Verbs are executed strictly in order. They wait while the store is read for one of them, and while
the reader hasn't taken the answers to earlier ones. So the outbox is never full of other replays
when a replay begins.
"""

from __future__ import annotations

import abc
import asyncio
import collections
import dataclasses
import itertools
import logging
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import ClassVar, Final

from gateway.answers.access import ANONYMOUS, AuthState
from gateway.answers.dispatcher import VerbDispatcher
from gateway.answers.verb import Found, Pending, refuse
from gateway.answers.verbs import Intent, VerbParser
from gateway.memory.hub import Hub
from gateway.memory.kept_topics import TopicSubscription
from gateway.past.replay import Replay
from gateway.process import measures
from gateway.process.settings import GatewaySettings
from gateway.process.tasks import Spawn
from gateway.readers.budget import Budget, ReaderStream
from gateway.wire.frames import Framing, disconnect_push, frame_as
from gateway.wire.outbox import Outbox
from gateway.wire.protocol import (
    Bucket,
    Subscribed,
    Throttle,
    VerbRefusal,
    subscription_refusal,
    too_many,
)
from gateway.wire.publication import Publication
from newsfabric.closing import (
    INTERNAL,
    INVALID_TOKEN,
    SLOW_READER,
    TOKEN_EXPIRED,
    TOO_BIG,
    TOO_MANY_REQUESTS,
    CloseReason,
    ErrorCode,
)

logger = logging.getLogger(__name__)

# At so many closing connections, a reader over capacity isn't sent the reason, but gets a bare 503.
_TURNED_AWAY_AT_ONCE: Final = 1_000
# Bytes of the outbox that are sent in one write.
_WRITE_BYTES: Final = 64 * 1024
# Verbs wait while the outbox holds more bytes than this.
_VERBS_WAIT_ABOVE: Final = 64 * 1024


@dataclasses.dataclass(kw_only=True, eq=False)
class OpenReaders:
    """The open connections, the closing ones, and the connections of each logged-in user.

    ``clock`` gives seconds and is monotonic. ``changed`` is set when the open ones have changed.
    """

    settings: GatewaySettings
    verbs: VerbParser
    hub: Hub
    dispatcher: VerbDispatcher
    clock: Callable[[], float]
    spawn: Spawn
    changed: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        # In the order of their arrival.
        self.open: dict[Connection, None] = {}
        self.closing: set[Connection] = set()
        self.budget = Budget(
            self.settings.outbox_memory,
            self.settings.stalled_seconds,
            lambda: (*self.open, *self.closing),
            self.clock,
        )
        #: The number of connections opened since the start.
        self.connects = 0
        self._by_user: dict[str, set[Connection]] = {}
        # Set while there is no connection at all.
        self._empty = asyncio.Event()
        self._empty.set()

    def can_turn_away(self) -> bool:
        """Return whether one more reader over capacity can be answered that there is no room."""
        return len(self.closing) < _TURNED_AWAY_AT_ONCE

    def joined(self, connection: Connection) -> None:
        """Count ``connection``, which is open now, as a reader."""
        self.open[connection] = None
        self._empty.clear()
        self.connects += 1
        measures.CONNECTS.labels(connection.transport).inc()
        measures.READERS.labels(connection.transport).inc()
        self.changed.set()

    def leaving(self, connection: Connection) -> None:
        """Count ``connection`` as closing: not as a reader, but :meth:`all_left` waits for it."""
        del self.open[connection]
        self.closing.add(connection)
        measures.READERS.labels(connection.transport).dec()
        self.changed.set()

    def left(self, connection: Connection) -> None:
        """Forget ``connection``, which is gone. Idempotent."""
        self.closing.discard(connection)
        if not self.open and not self.closing:
            self._empty.set()

    async def all_left(self) -> None:
        """Return when there is no connection, not even a closing one."""
        await self._empty.wait()

    def logged_in(self, user: str, connection: Connection) -> None:
        """Note that ``user`` is logged in on ``connection``, which :meth:`evict` may close."""
        self._by_user.setdefault(user, set()).add(connection)

    def logged_out(self, user: str, connection: Connection) -> None:
        """Note that ``user`` isn't logged in on ``connection`` any more."""
        connections = self._by_user[user]
        connections.discard(connection)
        if not connections:
            del self._by_user[user]

    def evict(self, revoked: Sequence[tuple[str, int]]) -> None:
        """Close the connections of revoked users, unless their token was issued after that."""
        for user, at_ms in revoked:
            for connection in tuple(self._by_user.get(user, ())):
                login = connection.auth.login
                if login is not None and login.issued_ms <= at_ms:
                    connection.close(INVALID_TOKEN)

    def send_away(self, count: int, reason: CloseReason, most_ms: int) -> None:
        """Have ``count`` readers connect to another box, each after ``most_ms`` at most."""
        for connection in list(itertools.islice(self.open, count)):
            wait_ms = random.randint(0, most_ms)  # noqa: S311 - jitter, not a secret
            connection.close(reason, retry_after_ms=wait_ms)


class Connection(abc.ABC):
    """The connection of one reader (:class:`gateway.answers.verb.Port`)."""

    transport: str
    framing: Framing
    #: Each verb here is of one reader: no others share the answer.
    reader_count: Final = 1
    # Bytes of verbs that may wait; a single waiting verb may be longer.
    most_verb_bytes = 64 * 1024
    _numbers: ClassVar = itertools.count(1)

    def __init__(self, readers: OpenReaders) -> None:
        self.readers = readers
        self.settings = readers.settings
        self._loop = asyncio.get_running_loop()
        self.number = next(self._numbers)
        self.is_open = True
        self.blocked = False
        self.subscriptions: dict[str, TopicSubscription] = {}
        self.outbox = Outbox(self.settings.outbox, readers.budget.account)
        self._bucket = Bucket(self.settings.reader, readers.clock())
        self.auth = ANONYMOUS
        self._expiry: asyncio.TimerHandle | None = None
        # Verbs that wait for their turn, each with the length of its text.
        self._verbs: collections.deque[tuple[Intent, int]] = collections.deque()
        self._verb_bytes = 0
        # The connection's own stream, if it has one.
        self.stream: ReaderStream | None = None
        self._busy = False
        # When a message first had to wait; None while no message waits.
        self._behind_since: float | None = None
        self._beat: asyncio.TimerHandle | None = None
        readers.joined(self)

    # Called by the dispatcher.

    async def read_when_room(self, read: Callable[[], Awaitable[Found]]) -> Found:
        """Return the result of ``read``: there is always room here."""
        # Frames that the reader doesn't take wait in its outbox, and then its next verbs wait too.
        return await read()

    def subscription_refusal(self, topic: str) -> VerbRefusal | None:
        """Return why the reader can't subscribe to one more topic, or to this one; else None."""
        return subscription_refusal(topic, self.subscriptions, self.settings.reader)

    def subscribe(self, reply: Subscribed, replay: Replay) -> None:
        """Enter the audience, answer with ``reply``, and send the ``replay`` that fits."""
        if self.is_open:
            topic = reply.topic
            self.subscriptions[topic] = self.readers.hub.topics.subscribe(topic, self)
            self.push(reply.push())
            self._replay(replay.newest_within(self.settings.replay_bytes))

    def unsubscribe(self, topic: str, push: bytes) -> None:
        """Leave the topic's audience, if subscribed to it, and answer with ``push``."""
        subscription = self.subscriptions.pop(topic, None)
        if subscription is not None:
            self.readers.hub.topics.unsubscribe(subscription)
        self.push(push)

    def identify(self, auth: AuthState, push: bytes) -> None:
        """Set the reader's login state to ``auth``, and answer with ``push``."""
        self.set_login_state(auth)
        self.push(push)

    def push(self, push: bytes) -> None:
        """Send a push that is not a message."""
        if self.is_open:
            self._firm(frame_as(push, self.framing))

    # Called by the hub and the drain.

    def deliver(self, frame: bytes, publication: Publication) -> bool:
        """Send one frame, or queue it under its topic's policy while the transport is blocked.

        Return whether the transport has taken it.
        """
        if not self.blocked:
            self._write([frame])
            return True
        if self._behind_since is None:
            self._behind_since = self.readers.clock()
        if not self.outbox.push(frame, publication, self.readers.clock()):
            self.close(SLOW_READER)
        return False

    def close(self, reason: CloseReason, *, retry_after_ms: int | None = None) -> None:
        """Send ``disconnect``, then the transport's goodbye. Do nothing if closing already."""
        if not self.is_open:
            return
        if reason is TOO_BIG:
            # An unreadable verb is answered like a refused one.
            refuse(self, VerbRefusal(code=ErrorCode.BAD_REQUEST, reason=reason.text))
            if not self.is_open:
                # The reader was too slow for that answer, and is closed.
                return
        if reason is SLOW_READER:
            behind = self.outbox.pending_bytes
            # Waiting frames would only delay the push that gives the reason.
            count = self.outbox.clear()
            measures.DROPPED.labels("disconnect").inc(count)
            text, about = "closing %d: %s (%d bytes behind)", {"connection": self.number}
            logger.debug(text, self.number, reason.name, behind, extra=about)
        self._unregister(reason.name)
        wait = reason.retry_after_ms if retry_after_ms is None else retry_after_ms
        self._say_goodbye(disconnect_push(reason, wait), reason)

    # Called by transports.

    def set_login_state(self, auth: AuthState) -> None:
        """Set the reader's login state to ``auth``, and close when its token has expired."""
        if not self.is_open:
            return
        self._log_out()
        self.auth = auth
        if (login := auth.login) is not None:
            self.readers.logged_in(login.user, self)
            left = max(0.0, login.ends_ms / 1000 - time.time())
            self._expiry = self._loop.call_later(left, self.close, TOKEN_EXPIRED)

    def received(self, data: str | bytes) -> None:
        """Execute ``data``, a whole message of the reader, in its turn and within its rate."""
        if not self.is_open:
            return
        verdict = self._bucket.admit(self.readers.clock())
        if verdict is Throttle.CLOSE:
            self.close(TOO_MANY_REQUESTS)
        elif verdict is Throttle.REFUSE:
            refuse(self, too_many(self.settings.reader))
        else:
            self.enqueue_verb(self.readers.verbs.parse(data), len(data))

    def enqueue_verb(self, intent: Intent, size: int = 0) -> None:
        """Execute ``intent``, read from a text of ``size`` bytes, in its turn."""
        full = len(self._verbs) >= self.settings.reader.waiting
        if full or (self._verbs and self._verb_bytes + size > self.most_verb_bytes):
            refuse(self, too_many(self.settings.reader))
            return
        self._verbs.append((intent, size))
        self._hold_verbs(size)
        self._run_verbs()

    def enqueue_verbs(self, intents: Iterable[Intent]) -> None:
        """Execute all verbs of one request in turn; there are no more than may wait."""
        self._verbs.extend((intent, 0) for intent in intents)
        self._run_verbs()

    @property
    def waiting_bytes(self) -> int:
        """The bytes kept for the reader: in its outbox, its waiting verbs and its stream."""
        in_stream = 0 if self.stream is None else self.stream.waiting
        return self.outbox.pending_bytes + self._verb_bytes + in_stream

    def unblocked(self) -> None:
        """Send the waiting frames, since the transport takes bytes again, then execute verbs."""
        self._flush()
        if not self.blocked and self._behind_since is not None:
            measures.BEHIND.labels().observe(self.readers.clock() - self._behind_since)
            self._behind_since = None
        if self.is_open:
            self._run_verbs()
        elif not self.blocked:
            self._all_sent()

    def lost(self) -> None:
        """Release everything: the transport is gone. Idempotent."""
        if self.is_open:
            self._unregister("lost")
        self.outbox.clear()
        self.readers.left(self)

    def start_heartbeats(self) -> None:
        """Send heartbeats from now on. The time of the first is random, to spread a crowd."""
        if self._beat is None:
            wait = self.settings.heartbeat * random.uniform(0.2, 1.0)  # noqa: S311 - no secret
            self._beat = self._loop.call_later(wait, self._on_beat)

    def stop_heartbeats(self) -> None:
        """Send no more heartbeats. Idempotent."""
        if self._beat is not None:
            self._beat.cancel()
            self._beat = None

    # Implemented by transports.

    @abc.abstractmethod
    def _write(self, frames: list[bytes]) -> None:
        """Write now, and set ``blocked`` if the transport takes no more. Never raise.

        Call :meth:`unblocked` when it takes bytes again, and :meth:`lost` when the peer is gone.
        """

    @abc.abstractmethod
    def _heartbeat(self) -> None:
        """Send bytes that keep proxies from closing an idle connection, if possible now."""

    @abc.abstractmethod
    def _say_goodbye(self, push: bytes, reason: CloseReason) -> None:
        """Send ``push``, not yet framed, and the transport's own close; then :meth:`lost`."""

    def _all_sent(self) -> None:  # noqa: B027 - most transports have nothing to do then
        """Act after the last frame of a closing connection was sent."""

    def _replayed(self, publication: Publication) -> bytes:
        return publication.frame(self.framing)

    # Private.

    def _replay(self, publications: list[Publication]) -> None:
        """Send requested messages: none of them is dropped or conflated."""
        was_blocked, self.blocked = self.blocked, True
        for publication in publications:
            if self.is_open:
                self._firm(self._replayed(publication))
        if not was_blocked:
            self.unblocked()

    def _flush(self) -> None:
        self.blocked = False
        while not self.blocked and (frames := self.outbox.take_frames(_WRITE_BYTES)):
            self._write(frames)

    def _firm(self, frame: bytes) -> None:
        if not self.blocked:
            self._write([frame])
        elif not self.outbox.push_firm(frame, self.readers.clock()):
            self.close(SLOW_READER)

    def _run_verbs(self) -> None:
        while (
            self._verbs
            and not self._busy
            and self.is_open
            and self.outbox.pending_bytes <= _VERBS_WAIT_ABOVE
        ):
            self._busy = True
            intent, size = self._verbs.popleft()
            self._hold_verbs(-size)
            try:
                pending = self.readers.dispatcher.decide(self, intent)
            except Exception:
                logger.exception("a verb can't be answered: its reader has to come again")
                self.close(INTERNAL)
                pending = None
            if pending is None:
                self._busy = False
            else:
                self.readers.spawn(self._finish(pending))

    async def _finish(self, pending: Pending) -> None:
        try:
            await pending
        except Exception:
            # The error is logged as any task's. Without an answer a reader would wait for ever.
            self.close(INTERNAL)
            raise
        finally:
            self._busy = False
        self._run_verbs()

    def _on_beat(self) -> None:
        self._beat = self._loop.call_later(self.settings.heartbeat, self._on_beat)
        self._heartbeat()

    def _unregister(self, why: str) -> None:
        """Leave the hub, since the connection is closing or gone; ``why``: the metric's label."""
        self.is_open = False
        for subscription in self.subscriptions.values():
            self.readers.hub.topics.unsubscribe(subscription)
        self.subscriptions.clear()
        self._verbs.clear()
        self._hold_verbs(-self._verb_bytes)
        self._log_out()
        measures.CLOSES.labels(why).inc()
        self.readers.leaving(self)

    def _log_out(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        if self.auth.login is not None:
            self.readers.logged_out(self.auth.login.user, self)
        self.auth = ANONYMOUS

    def _hold_verbs(self, size: int) -> None:
        self._verb_bytes += size
        self.readers.budget.account.add_bytes(size)
