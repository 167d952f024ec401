"""Publishers over AMQP and HTTP, each until its message has a receipt.

Open loop: the due times of messages don't depend on earlier ones, and readers' delays are measured
from the due time. A publisher with too many messages without receipts is behind. It reports that as
a failure, and sends the due messages later.
"""

from __future__ import annotations

import dataclasses
import http.client
import json
import secrets
import time
from typing import Any, Final

import gevent
import gevent.pool
import pika
import pika.exceptions
from locust import User, events, task

from loadtest.locusts.state import Run, current
from loadtest.locusts.wire import post
from loadtest.records import BODY_FIELD, PublisherRecord

_MOST_OPEN: Final = 1000
_AGAIN: Final = 5.0
_HTTP_AT_ONCE: Final = 50
# One of so many messages is for a mailbox, if there are logged-in readers.
_MAILBOX_EVERY: Final = 10
_APP_ID: Final = "loadtest"


@dataclasses.dataclass(slots=True, kw_only=True)
class _Message:
    topic: str
    number: int
    id: str
    body: bytes
    due: float
    sent_ns: int
    next_try: float


class _Publisher(User):
    abstract = True
    protocol = ""

    @task
    def publish(self) -> None:
        """Publish all messages of this publisher, until the test ends."""
        self.run_now: Run = current()
        self.record = PublisherRecord(secrets.token_hex(6))
        self.run_now.publishers.append(self.record)
        self.count = self.run_now.number()
        self.due = time.monotonic()
        self._is_behind = False
        self.work()

    def work(self) -> None:
        """Publish for ever."""
        raise NotImplementedError

    def next_due(self) -> float | None:
        """Return the seconds until the next message is due; None when no more are due."""
        rate = self.run_now.messages_each
        if rate <= 0:
            return None
        return self.due + 1 / rate - time.monotonic()

    def behind(self, is_behind: bool) -> None:
        """Note whether too many messages lack receipts; a failure each time this begins."""
        if is_behind and not self._is_behind:
            self.report(0.0, 0, RuntimeError("behind: too many messages wait for receipts"))
        self._is_behind = is_behind

    def make(self) -> _Message:
        """Return the next message, which is due now."""
        self.due += 1 / (self.run_now.messages_each or 1.0)
        self.count += 1
        topic = self._topic()
        number = self.record.next(topic)
        # By the machine's clock, since readers may be in other processes, or on other machines.
        late = max(0.0, time.monotonic() - self.due)
        now = time.time_ns()
        body: dict[str, Any] = {
            BODY_FIELD: self.record.name,
            "n": number,
            "sent_ns": now,
            "due_ns": now - round(late * 1e9),
            "text": "",
        }
        body["text"] = "x" * max(0, self.run_now.options.body - len(json.dumps(body)))
        return _Message(
            topic=topic,
            number=number,
            id=f"{self.record.name}-{topic}-{number}",
            body=json.dumps(body).encode(),
            due=self.due,
            sent_ns=now,
            next_try=0.0,
        )

    def routed(self, message: _Message) -> None:
        """Note that ``message`` has its receipt."""
        self.record.receipted(message.topic, message.number, message.sent_ns)
        self.report(1000 * (time.monotonic() - message.due), len(message.body))

    def report(self, ms: float, size: int, failure: Exception | None = None) -> None:
        """Count a publication, or a ``failure``, in locust's statistics."""
        events.request.fire(
            request_type="publish",
            name=self.protocol,
            response_time=ms,
            response_length=size,
            exception=failure,
            context={},
        )

    def _topic(self) -> str:
        users, topics = self.run_now.users, self.run_now.options.topics
        if users and self.count % _MAILBOX_EVERY == 0:
            return f"user.{users[self.count // _MAILBOX_EVERY % len(users)]}"
        return topics[self.count % len(topics)]


class AmqpPublisher(_Publisher):
    """A publisher as in docs/publishing.md: a receipt for each message, and retries without one."""

    fixed_count = 1
    protocol = "AMQP"

    def work(self) -> None:
        """Publish for ever; reconnect a second after a connection has broken."""
        self._open: dict[str, _Message] = {}
        while True:
            urls = self.run_now.options.amqp
            url = urls[self.run_now.number() % len(urls)]
            try:
                self._connected(url)
            except (pika.exceptions.AMQPError, OSError) as exc:
                self.report(0.0, 0, ConnectionError(type(exc).__name__))
                gevent.sleep(1.0)

    def _connected(self, url: str) -> None:
        parameters = pika.URLParameters(url)
        if self.run_now.amqp_password:
            user = parameters.credentials.username
            parameters.credentials = pika.PlainCredentials(user, self.run_now.amqp_password)
        connection = pika.BlockingConnection(parameters)
        try:
            self._channel = connection.channel()
            self._receipts = self._channel.queue_declare("", exclusive=True).method.queue
            self._channel.basic_consume(self._receipts, self._receipt, auto_ack=True)
            for message in self._open.values():
                self._send(message)
            while True:
                self._step(connection)
        finally:
            if connection.is_open:
                connection.close()

    def _step(self, connection: pika.BlockingConnection) -> None:
        wait = self.next_due()
        if wait is not None and wait <= 0:
            self.behind(len(self._open) >= _MOST_OPEN)
            if not self._is_behind:
                message = self.make()
                self._open[message.id] = message
                self._send(message)
                wait = 0.0
            else:
                wait = 0.1
        connection.process_data_events(time_limit=min(0.2 if wait is None else wait, 0.2))
        now = time.monotonic()
        for message in self._open.values():
            if message.next_try <= now:
                self._send(message)

    def _send(self, message: _Message) -> None:
        message.next_try = time.monotonic() + _AGAIN
        properties = pika.BasicProperties(
            content_type="application/json",
            message_id=message.id,
            app_id=_APP_ID,
            reply_to=self._receipts,
            correlation_id=message.id,
        )
        self._channel.basic_publish("publish", message.topic, message.body, properties)

    def _receipt(self, _channel: Any, _method: Any, properties: Any, body: bytes) -> None:
        message = self._open.pop(properties.correlation_id, None)
        if message is None:
            return
        status = json.loads(body)
        if status.get("status") == "routed":
            self.routed(message)
        else:
            self.report(0.0, 0, ValueError(f"rejected: {status.get('reason')}"))


class HttpPublisher(_Publisher):
    """A publisher by POST /publish at a frontdesk, with retries after 503, 504 or no reply."""

    fixed_count = 1
    protocol = "HTTP"

    def work(self) -> None:
        """Publish for ever, a bounded number concurrently."""
        pool = gevent.pool.Pool(_HTTP_AT_ONCE)
        try:
            while True:
                wait = self.next_due()
                if wait is not None and wait <= 0:
                    self.behind(pool.free_count() == 0)
                    pool.wait_available()
                    pool.spawn(self._deliver, self.make())
                else:
                    gevent.sleep(min(0.2 if wait is None else wait, 0.2))
        finally:
            pool.kill(block=False)

    def _deliver(self, message: _Message) -> None:
        frontdesks = self.run_now.options.frontdesks
        headers = {"Content-Type": "application/json", "Idempotency-Key": message.id}
        if self.run_now.http_key:
            headers["Authorization"] = f"Bearer {self.run_now.http_key}"
        document = {"topic": message.topic, "body": json.loads(message.body), "app_id": _APP_ID}
        sent = json.dumps(document).encode()
        pause = 0.5
        while True:
            try:
                # To the same frontdesk, which knows whether it had the message.
                status, _answer = post(
                    f"{frontdesks[message.number % len(frontdesks)]}/publish", sent, headers
                )
            except (OSError, http.client.HTTPException) as exc:
                self.report(0.0, 0, ConnectionError(type(exc).__name__))
            else:
                if status in (200, 201):
                    self.routed(message)
                    return
                self.report(0.0, 0, ValueError(f"status {status}"))
                if status not in (503, 504):
                    return
            gevent.sleep(pause)
            pause = min(pause * 2, _AGAIN)
