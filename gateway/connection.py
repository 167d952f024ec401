"""One reader's connection, the same for every transport: session, outbox, life and death.

::

    OPEN ──close()──► CLOSING ──the transport is gone──► CLOSED
      └──────────── the transport is gone ───────────────┘

A connection leaves the hub at once when it starts to close, so nothing is sent to it but the
``disconnect`` push and its transport's goodbye. Writing never raises and never waits: a
transport that takes nothing now is *blocked*, and its frames go to the outbox. While it isn't
blocked the outbox is empty, so a delivery is one call and one write.

Verbs are obeyed strictly in order. They wait while the store is asked for one of them, and
while the reader hasn't taken what it asked for before; so a replay never finds an outbox full of
other replays.
"""

from __future__ import annotations

import abc
import asyncio
import collections
import enum
import itertools
import logging
import random
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, ClassVar, Final, Protocol

from gateway import measures
from gateway.auth_state import ANONYMOUS, AuthState
from gateway.budget import Budget, ReaderStream
from gateway.desk import Desk
from gateway.frames import Variant, disconnect_push, dress
from gateway.hub import Hub
from gateway.kept_topics import Subscription
from gateway.outbox import Outbox
from gateway.protocol import (
    Intent,
    Refusal,
    Session,
    Subscribe,
    Subscribed,
    Throttle,
    error_push,
    subscribed_push,
)
from gateway.publication import Publication
from gateway.recalled import Recalled
from gateway.settings import GatewaySettings
from newsfabric.closing import (
    SLOW_READER,
    TOKEN_EXPIRED,
    TOO_BIG,
    TOO_MANY_REQUESTS,
    CloseReason,
    ErrorCode,
)
from newsfabric.topics import TopicTable

logger = logging.getLogger(__name__)

# How much leaves the outbox in one write.
_WRITE_BYTES: Final = 64 * 1024
# Verbs wait while more than this waits for the reader.
_VERBS_WAIT_ABOVE: Final = 64 * 1024
_BUSY: Final = Refusal(code=ErrorCode.TOO_MANY_REQUESTS, reason="too many requests", temporary=True)


class State(enum.Enum):
    """The life of a connection."""

    OPEN = "open"
    CLOSING = "closing"
    CLOSED = "closed"


STEPS: Final[Mapping[State, frozenset[State]]] = {
    State.OPEN: frozenset({State.CLOSING, State.CLOSED}),
    State.CLOSING: frozenset({State.CLOSED}),
    State.CLOSED: frozenset(),
}


class Home(Protocol):
    """What a connection needs of its gateway."""

    settings: GatewaySettings
    table: TopicTable
    hub: Hub
    desk: Desk
    budget: Budget
    clock: Callable[[], float]

    def joined(self, connection: Connection) -> None:
        """It is open."""

    def leaving(self, connection: Connection) -> None:
        """It is closing."""

    def left(self, connection: Connection) -> None:
        """It is gone."""

    def logged_in(self, user: str, connection: Connection) -> None:
        """It is ``user``'s."""

    def logged_out(self, user: str, connection: Connection) -> None:
        """It isn't any more."""

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run ``work`` as a task of the gateway's."""


class Connection(abc.ABC):
    """A reader. Transports call the lower half and implement the three abstract methods."""

    transport: str
    variant: Variant
    # Bytes of verbs that may wait; one verb may be longer alone.
    most_verb_bytes = 64 * 1024
    _numbers: ClassVar = itertools.count(1)

    def __init__(self, home: Home) -> None:
        self.home = home
        self.number = next(self._numbers)
        self.state = State.OPEN
        self.blocked = False
        self.subscriptions: dict[str, Subscription] = {}
        self.outbox = Outbox(home.settings.outbox, home.budget.account)
        self.session = Session(home.table, home.settings.reader, home.clock())
        self.auth = ANONYMOUS
        self._expiry: asyncio.TimerHandle | None = None
        # What waits for its turn, and how long its text was.
        self._verbs: collections.deque[tuple[Intent, int]] = collections.deque()
        self._verb_bytes = 0
        # Its own, if it has one.
        self.stream: ReaderStream | None = None
        self._busy = False
        # When a message first had to wait; None while none does.
        self._behind_since: float | None = None
        home.joined(self)

    # What the desk calls (gateway.desk.Port).

    @property
    def is_full(self) -> bool:
        """Never: what a reader doesn't take waits in its outbox, and its next verb with it."""
        return False

    async def room(self) -> None:  # noqa: B027 - there is always room
        """Return at once."""

    def clash(self, verb: Subscribe) -> Refusal | None:
        """Why it can't have another topic, or this one."""
        return self.session.clash(verb, self.subscriptions)

    def subscribe(self, verb: Subscribe, told: Subscribed, replay: Recalled) -> None:
        """Say ``subscribed``, replay, and give it the topic from now on."""
        if self.state is not State.OPEN:
            return
        self.subscriptions[verb.topic] = self.home.hub.topics.subscribe(verb.topic, self)
        self.push(subscribed_push(verb, told))
        self.replay(replay.that_fit(self.home.settings.replay_bytes))

    def unsubscribe(self, topic: str, push: bytes) -> None:
        """Take a subscription back, if there is one, and say ``push``."""
        subscription = self.subscriptions.pop(topic, None)
        if subscription is not None:
            self.home.hub.topics.unsubscribe(subscription)
        self.push(push)

    def identify(self, auth: AuthState, push: bytes) -> None:
        """From now on it is who ``auth`` says; say ``push``."""
        if auth != self.auth:
            self.set_auth(auth)
        self.push(push)

    # What the hub, the desk and the drain call.

    def deliver(self, frame: bytes, publication: Publication) -> bool:
        """Send one frame, or keep it under its topic's policy while the transport is blocked.

        Whether the transport has taken it.
        """
        if not self.blocked:
            self._write([frame])
            return True
        if self._behind_since is None:
            self._behind_since = self.home.clock()
        if not self.outbox.push(frame, publication, self.home.clock()):
            self.close(SLOW_READER)
        elif self.outbox.dropped:
            self._count_dropped()
        return False

    def push(self, text: bytes) -> None:
        """Send a push that is not a message."""
        if self.state is State.OPEN:
            self._firm(dress(text, self.variant))

    def replay(self, publications: list[Publication]) -> None:
        """Send messages that were asked for: none of them is dropped or conflated."""
        was_blocked, self.blocked = self.blocked, True
        for publication in publications:
            if self.state is State.OPEN:
                self._firm(self._replayed(publication))
        if not was_blocked:
            self._flush()

    def _replayed(self, publication: Publication) -> bytes:
        return publication.frame(self.variant)

    def set_auth(self, auth: AuthState) -> None:
        """From now on the reader is who ``auth`` says, until that one's token has run out."""
        if self.state is not State.OPEN:
            return
        self._log_out()
        self.auth = auth
        if (login := auth.login) is not None:
            self.home.logged_in(login.user, self)
            left = max(0.0, login.ends_ms / 1000 - time.time())
            loop = asyncio.get_running_loop()
            self._expiry = loop.call_later(left, self.close, TOKEN_EXPIRED)

    def _log_out(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        if self.auth.login is not None:
            self.home.logged_out(self.auth.login.user, self)
        self.auth = ANONYMOUS

    def refuse(self, refusal: Refusal) -> None:
        """Send an ``error`` push."""
        measures.ERRORS.labels(int(refusal.code)).inc()
        self.push(error_push(refusal))

    def close(self, reason: CloseReason, *, retry_after_ms: int | None = None) -> None:
        """Say ``disconnect``, then goodbye in the transport's way. Harmless when it is closing."""
        if self.state is not State.OPEN:
            return
        if reason is TOO_BIG:
            # A verb that can't be read is answered like one that can't be obeyed.
            self.refuse(Refusal(code=ErrorCode.BAD_REQUEST, reason=reason.text))
        if reason is SLOW_READER:
            behind = self.outbox.pending_bytes
            # What waits would only keep the reader from hearing why it is closed.
            count = self.outbox.clear()
            measures.DROPPED.labels("disconnect").inc(count)
            text, about = "closing %d: %s (%d bytes behind)", {"connection": self.number}
            logger.debug(text, self.number, reason.name, behind, extra=about)
        self._leave(State.CLOSING, reason.name)
        wait = reason.retry_after_ms if retry_after_ms is None else retry_after_ms
        self._say_goodbye(disconnect_push(reason, wait), reason)

    # What transports call.

    def received(self, data: str | bytes) -> None:
        """A verb has come in."""
        if self.state is not State.OPEN:
            return
        verdict = self.session.admit(self.home.clock())
        if verdict is Throttle.HANG_UP:
            self.close(TOO_MANY_REQUESTS)
        elif verdict is Throttle.REFUSE:
            self.refuse(_BUSY)
        else:
            self.ask(self.session.read(data), len(data))

    def ask(self, intent: Intent, size: int = 0) -> None:
        """Obey ``intent``, of a text of ``size`` bytes, when its turn comes."""
        full = len(self._verbs) >= self.home.settings.reader.waiting
        if full or (self._verbs and self._verb_bytes + size > self.most_verb_bytes):
            self.refuse(_BUSY)
            return
        self._verbs.append((intent, size))
        self._hold_verbs(size)
        self._obey()

    def ask_all(self, intents: Iterable[Intent]) -> None:
        """Obey what a request asks for all at once; there are no more than may wait."""
        self._verbs.extend((intent, 0) for intent in intents)
        self._obey()

    @property
    def waiting_bytes(self) -> int:
        """What is kept for the reader until it takes what it asked for."""
        return self.outbox.pending_bytes + self._verb_bytes

    @property
    def waiting(self) -> bool:
        """Whether something that was asked for hasn't been obeyed yet."""
        return self._busy or bool(self._verbs)

    def unblocked(self) -> None:
        """The transport takes bytes again: send what waits, then go on with the verbs."""
        self._flush()
        if not self.blocked and self._behind_since is not None:
            measures.BEHIND.labels().observe(self.home.clock() - self._behind_since)
            self._behind_since = None
        if self.state is State.OPEN:
            self._obey()
        elif not self.blocked:
            self._all_sent()

    def reader_leaves(self) -> bool:
        """The reader has said goodbye. False if that only answers ours."""
        if self.state is not State.OPEN:
            return False
        self._leave(State.CLOSING, "reader")
        return True

    def lost(self, why: str) -> None:
        """The transport is gone; ``why`` is the metric's label if that wasn't our doing."""
        if self.state is State.OPEN:
            self._leave(State.CLOSED, why)
        self.state = State.CLOSED
        self.outbox.clear()
        self.home.left(self)

    # What transports implement.

    @abc.abstractmethod
    def _write(self, frames: list[bytes]) -> None:
        """Write now, and set ``blocked`` if no more can be taken. Never raises.

        Call :meth:`unblocked` when it can, and :meth:`lost` when the peer turns out to be gone.
        """

    @abc.abstractmethod
    def _say_goodbye(self, push: bytes, reason: CloseReason) -> None:
        """Send the undressed ``push`` and the transport's own close, then :meth:`lost`."""

    def _all_sent(self) -> None:  # noqa: B027 - most transports have nothing to do then
        """A closing connection's last frame has left."""

    # Private.

    def _flush(self) -> None:
        self.blocked = False
        while not self.blocked and (frames := self.outbox.take(_WRITE_BYTES)):
            self._write(frames)

    def _firm(self, frame: bytes) -> None:
        if not self.blocked:
            self._write([frame])
        elif not self.outbox.push_firm(frame, self.home.clock()):
            self.close(SLOW_READER)

    def _obey(self) -> None:
        while (
            self._verbs
            and not self._busy
            and self.state is State.OPEN
            and self.outbox.pending_bytes <= _VERBS_WAIT_ABOVE
        ):
            self._busy = True
            intent, size = self._verbs.popleft()
            self._hold_verbs(-size)
            pending = self.home.desk.decide(self, intent)
            if pending is None:
                self._busy = False
            else:
                self.home.spawn(self._finish(pending))

    async def _finish(self, pending: Coroutine[Any, Any, None]) -> None:
        try:
            await pending
        finally:
            self._busy = False
        self._obey()

    def _leave(self, state: State, why: str) -> None:
        assert state in STEPS[self.state]
        self.state = state
        for subscription in self.subscriptions.values():
            self.home.hub.topics.unsubscribe(subscription)
        self.subscriptions.clear()
        self._verbs.clear()
        self._hold_verbs(-self._verb_bytes)
        self._log_out()
        measures.CLOSES.labels(why).inc()
        self._count_dropped()
        self.home.leaving(self)

    def _hold_verbs(self, size: int) -> None:
        self._verb_bytes += size
        self.home.budget.account.hold(size)

    def _count_dropped(self) -> None:
        for policy, count in self.outbox.take_dropped().items():
            measures.DROPPED.labels(policy).inc(count)

    def first_beat(self) -> float:
        """Seconds until the first heartbeat: a random phase, so that a crowd spreads out."""
        return self.home.settings.heartbeat * random.uniform(0.2, 1.0)  # noqa: S311 - no secret
