"""Readers as locust runs them, a greenlet each. ``records`` has their deliveries.

Each behaves as in docs/protocol.md: it asks a frontdesk, connects, subscribes, and reconnects with
its position, whatever ended the connection.
"""

from __future__ import annotations

import random
import time
from typing import Any, Final, NoReturn

import gevent
from locust import User, events, task

from loadtest.locusts.state import Run, current
from loadtest.locusts.wire import Disconnected, Push, WireConnection, connect, endpoints
from loadtest.records import BODY_FIELD, ReaderRecord

# Of a SlowReader's socket: the kernel rounds up to the least that it allows.
_LEAST_RECEIVE_BYTES: Final = 4096
_TAKES: Final = 15.0
_MOST_WAIT: Final = 30.0
_WAIT_AGAIN: Final = 0.5


class DeliveryError(Exception):
    """A message was lost, or delivered twice."""


class _Reader(User):
    abstract = True
    weight = 1
    fallback = False
    receive_bytes = 0

    @task
    def read(self) -> None:
        """Keep a connection, again and again, until locust ends this user."""
        self.run_now: Run = current()
        self.kind = type(self).__name__
        self.number = self.run_now.number()
        self.turn = self.number
        self.record = ReaderRecord(self.kind, time.time_ns())
        self.positions: dict[str, str] = {}
        self.login: tuple[str, str] | None = None
        self.begin()
        self.run_now.records.add(self.record)
        try:
            while True:
                gevent.sleep(self._one_connection())
        finally:
            self.run_now.leave(self.record)

    def begin(self) -> None:
        """Prepare the reader before its first connection."""

    def between(self, connection: WireConnection) -> None:
        """Act between two looks at the connection; raise Disconnected to leave it."""

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics of this reader."""
        return self.run_now.options.topics

    def _one_connection(self) -> float:
        """Make one connection and read it; return the seconds to wait before the next."""
        self.since = time.monotonic()
        try:
            connection = self._connect()
            self.run_now.cuts.add(connection.close)
            try:
                self._subscribe(connection)
                self._take_all(connection)
            finally:
                self.run_now.cuts.discard(connection.close)
                connection.close()
        except Disconnected as lost:
            self.record.away(time.time_ns())
            if self.waits_for:
                # The next connection is elsewhere.
                self.turn += 1
                self._report("connect", 1000 * (time.monotonic() - self.since), 0, lost)
            wait = lost.after
        return min(wait, _MOST_WAIT) + random.uniform(0, _WAIT_AGAIN)

    def _connect(self) -> WireConnection:
        self.waits_for = set(self.topics)
        self.here_since = time.time_ns()
        options = self.run_now.options
        frontdesk = options.frontdesks[self.turn % len(options.frontdesks)]
        found = endpoints(frontdesk, source=options.source, own=options.i_own_this_target)
        weights = [gateway["weight"] for gateway in found]
        return connect(
            random.choices(found, weights)[0],
            fallback=self.fallback,
            source=options.source,
            receive_bytes=self.receive_bytes,
        )

    def _subscribe(self, connection: WireConnection) -> None:
        if self.login is not None:
            connection.send({"action": "login", "token": self.login[1]})
        for topic in self.topics:
            verb: dict[str, Any] = {"action": "subscribe", "topic": topic}
            if topic in self.positions:
                verb["position"] = self.positions[topic]
            connection.send(verb)

    def _take_all(self, connection: WireConnection) -> NoReturn:
        while True:
            for push in connection.receive():
                self._taken(push)
            if not self.waits_for:
                self.between(connection)
            elif time.monotonic() > self.since + _MOST_WAIT:
                raise Disconnected("no answer to subscribe")

    def _taken(self, push: Push) -> None:
        kind = push.get("type")
        if kind == "message":
            self._message(push)
        elif kind == "subscribed":
            self._subscribed(push)
        elif kind == "disconnect":
            raise Disconnected(
                f"disconnect {push.get('code')}", (push.get("retry_after_ms") or 0) / 1000
            )
        elif kind == "error":
            raise Disconnected(f"error {push.get('code')}", 1.0)
        if isinstance(push.get("position"), str):
            self.positions[str(push.get("topic"))] = push["position"]

    def _subscribed(self, push: Push) -> None:
        topic = str(push.get("topic"))
        now = time.time_ns()
        resumed = topic in self.record.since
        recovered = push.get("recovered") is True
        self.record.subscribed(topic, now, resumed=resumed, recovered=recovered)
        if resumed and not recovered:
            self._report("gap", 0.0, 0, DeliveryError(f"resume: {push.get('reason')}"))
        self.waits_for.discard(topic)
        if not self.waits_for:
            self.here_since = now
            self.record.back(now)
            self._report("connect", 1000 * (time.monotonic() - self.since), 0)

    def _message(self, push: Push) -> None:
        body = push.get("body")
        if not isinstance(body, dict) or BODY_FIELD not in body:
            return
        key = (str(push["topic"]), str(body[BODY_FIELD]))
        number = int(body["n"])
        agrees = self.run_now.identities.agrees(key, number, str(push["id"])[14:])
        got = self.record.got(key, number, agrees=agrees)
        if got == "doubled":
            self._report("doubled", 0.0, 0, DeliveryError("a message came twice"))
        elif got == "new":
            live = not self.waits_for and body["sent_ns"] > self.here_since
            delay = (time.time_ns() - body["due_ns"]) / 1e6
            # Messages of a time away, or before the login, prove nothing about delay.
            if live:
                self._report("receive", max(delay, 0.0), len(body["text"]))
            elif body["sent_ns"] > self.record.began:
                self._report("resume", max(delay, 0.0), len(body["text"]))

    def _report(self, what: str, ms: float, size: int, failure: Exception | None = None) -> None:
        if not self.run_now.closed:
            events.request.fire(
                request_type=what,
                name=self.kind,
                response_time=ms,
                response_length=size,
                exception=failure,
                context={},
            )


class AnonymousReader(_Reader):
    """A reader that connects, subscribes and stays."""


class RegisteredReader(_Reader):
    """A reader that logs in with a token, and reads its mailbox, too."""

    def begin(self) -> None:
        """Take one of the run's users and its token."""
        users = self.run_now.users
        if users:
            which = self.number % len(users)
            self.login = (users[which], self.run_now.tokens[which])

    @property
    def topics(self) -> tuple[str, ...]:
        """The run's topics and the user's own."""
        assert self.login is not None, "options were checked: there are tokens"
        return (*self.run_now.options.topics, f"user.{self.login[0]}")


class RoamingReader(_Reader):
    """A reader that moves to the next region again and again, with its position."""

    def between(self, connection: WireConnection) -> None:
        """Raise Disconnected after ``roam_every`` seconds."""
        stayed = time.monotonic() - self.since
        if stayed > self.run_now.options.roam_every and not self.run_now.settling:
            self.turn += 1
            raise Disconnected("roams")


class SlowReader(_Reader):
    """A reader that reads nothing for long, then all; gateways end that with 4101 at some time."""

    receive_bytes = _LEAST_RECEIVE_BYTES

    def between(self, connection: WireConnection) -> None:
        """Read nothing for ``slow_pause`` seconds, again and again."""
        pause = self.run_now.options.slow_pause
        if time.monotonic() - self.since < _TAKES or pause <= 0 or self.run_now.settling:
            return
        self.record.away(time.time_ns(), pausing=True)
        until = time.monotonic() + pause
        while time.monotonic() < until and not self.run_now.settling:
            gevent.sleep(0.5)
        self.since = time.monotonic()
        # Messages that waited until now have an age, and no delay.
        self.here_since = time.time_ns()
        self.record.back(self.here_since)


class FallbackReader(_Reader):
    """A reader by SockJS over xhr-streaming."""

    fallback = True
