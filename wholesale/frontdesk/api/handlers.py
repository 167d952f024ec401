"""The frontdesk's requests and replies over HTTP."""

from __future__ import annotations

import asyncio
import functools
import logging
import math
import secrets
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final

import tornado.web
from tornado.http1connection import HTTP1Connection

from newsfabric.amqp.message import Message
from newsfabric.errors import StoreError
from newsfabric.line_limits import LineLimit
from newsfabric.messages.control import OVERLOAD, PUBLISHER_NOT_ALLOWED, Receipt
from newsfabric.messages.envelope import DEFAULT_LIMITS, JSON, MessageLimits, identity_of_id
from newsfabric.numbers import whole_number
from newsfabric.process.service import answer_preflight
from newsfabric.store import Store
from newsfabric.store.sound import newest_sound
from newsfabric.topics import TopicTable
from wholesale.common.http import RETRY, ClientRateLimit, HttpProblem, JsonHandler
from wholesale.frontdesk.api import counters
from wholesale.frontdesk.api.access import PublishAccess
from wholesale.frontdesk.api.answers import (
    ENDPOINTS_TTL,
    RETRY_MS,
    EndpointsReply,
    history_document,
)
from wholesale.frontdesk.api.awaiting import Receipts
from wholesale.frontdesk.api.catching_up import HistoryProxy, HistoryReply
from wholesale.frontdesk.api.publication import (
    check_many,
    check_query,
    in_curls_words,
    parse_document,
    parse_dry_run,
    parse_publication,
    rehearse,
)
from wholesale.frontdesk.api.repeats import Name, Repeats
from wholesale.frontdesk.presence.boxes import Boxes

logger = logging.getLogger(__name__)

# JSON can spell one byte as six ("\u0041"), and there are the other fields.
MAX_REQUEST_BYTES: Final = 6 * DEFAULT_LIMITS.max_body_bytes + 16 * 1024
# The body of a refused request is read up to here, and dropped, so that the reply arrives.
_MAX_READ: Final = 8 << 20
_MAX_LENGTH: Final = 2**63 - 1
_MAX_HISTORY: Final = 200
_DEFAULT_HISTORY: Final = 20
# Reasons of a router that have an HTTP status of their own.
_REFUSED: Final = {"too_large": 413, PUBLISHER_NOT_ALLOWED: 403}


class OpenHandler(JsonHandler):
    """The base of public replies without credentials, which any page may read."""

    def set_default_headers(self) -> None:
        """Allow any page to read the reply (CORS). Called by Tornado before each reply."""
        super().set_default_headers()
        self.set_header("Access-Control-Allow-Origin", "*")

    def options(self) -> None:
        """Reply to a CORS preflight, for example of a page that sends its token."""
        answer_preflight(self)


class EndpointsHandler(OpenHandler):
    """``GET /endpoints.json``: the gateways to connect to, or 503 with the other regions."""

    def initialize(self, boxes: Boxes, endpoints: EndpointsReply) -> None:
        """Set the known ``boxes``, and ``endpoints``, which makes the reply. Called by Tornado."""
        self._boxes = boxes
        self._endpoints = endpoints

    def get(self) -> None:
        """Reply 200, which caches may keep for ENDPOINTS_TTL seconds, or 503."""
        now = time.monotonic()
        offered = self._boxes.offers(now=now)
        counters.BOXES.set(self._boxes.count(now=now))
        if offered:
            counters.WITH_GATEWAYS.inc()
            self.set_header("Cache-Control", f"public, max-age={ENDPOINTS_TTL}, no-transform")
        else:
            counters.WITHOUT_GATEWAYS.inc()
            self.set_header("Retry-After", str(math.ceil(RETRY_MS / 1000)))
        self.write_document(self._endpoints.endpoints_document(offered), 200 if offered else 503)


class HistoryHandler(OpenHandler):
    """``GET /history?topic=&limit=&before=``: the newest of a public topic, oldest first.

    With ``after=`` (a position, or nothing) the reply is a gateway's.
    """

    def initialize(
        self,
        store: Store,
        topics: TopicTable,
        boxes: Boxes,
        catching_up: HistoryProxy,
        failing: LineLimit,
        pace: ClientRateLimit,
    ) -> None:
        """Set these; ``failing`` limits log lines, ``pace`` each address. Called by Tornado."""
        self._failing = failing
        self._store = store
        self._topics = topics
        self._boxes = boxes
        self._catching_up = catching_up
        self._pace = pace
        self._asking: asyncio.Future[HistoryReply] | None = None
        self._left = False

    async def get(self) -> None:
        """Send the history; 400: bad arguments, 403: not public, 404: no such topic; 429, 503.

        With ``after=`` the status is the gateway's.
        """
        self._pace.check_rate(self.request)
        if "after" in self.request.query_arguments:
            await self._catch_up()
        else:
            await self._newest()

    async def _catch_up(self) -> None:
        if "before" in self.request.query_arguments:
            raise HttpProblem(400, "bad_request", "either after or before")
        names = ("topic", "after", "limit")
        query = {name: self.get_query_argument(name) for name in names if self._has(name)}
        boxes = [offer.report for offer in self._boxes.offers(now=time.monotonic())]
        self._asking = asyncio.ensure_future(
            self._catching_up.ask_boxes(boxes, query, self.request.headers)
        )
        try:
            answer = await self._asking
        except asyncio.CancelledError:
            if self._left:
                return
            raise
        self.set_status(answer.status)
        self.set_header("Content-Type", JSON)
        self.finish(answer.body)

    def on_connection_close(self) -> None:
        """Cancel the request to gateways after the client has disconnected. Called by Tornado."""
        self._left = True
        if self._asking is not None:
            self._asking.cancel()

    def _has(self, name: str) -> bool:
        return name in self.request.query_arguments

    async def _newest(self) -> None:
        topic = self.get_argument("topic", "")
        if not topic:
            raise HttpProblem(400, "bad_request", "topic is required: /history?topic=news.breaking")
        limit, before = self._limit(), self._before()
        policy = self._topics.find(topic)
        if policy is None:
            raise HttpProblem(404, "unknown_topic", "no such topic")
        if policy.access != "public":
            raise HttpProblem(403, "permission_denied", "this topic isn't public")
        try:
            found = await newest_sound(
                lambda asked: self._store.history(topic, limit=asked, before=before), limit
            )
        except StoreError as exc:
            suppressed = self._failing.may_log(time.monotonic())
            if suppressed is not None:
                logger.warning("no history (and %d more): %s", suppressed, exc)
            raise HttpProblem(503, "unavailable", "the store is away", headers=RETRY) from exc
        self.write_document(history_document(topic, policy.topic_class, found))

    def _limit(self) -> int:
        text = self.get_query_argument("limit", str(_DEFAULT_HISTORY), strip=False)
        try:
            return whole_number(text, 1, _MAX_HISTORY)
        except ValueError as exc:
            what = f"limit must be from 1 to {_MAX_HISTORY}"
            raise HttpProblem(400, "bad_request", what) from exc

    def _before(self) -> str | None:
        before = self.get_argument("before", "")
        if not before:
            return None
        try:
            identity_of_id(before)
        except ValueError as exc:
            raise HttpProblem(400, "bad_request", "before must be a message's id") from exc
        return before


@tornado.web.stream_request_body
class PublishHandler(JsonHandler):
    """``POST /publish``: 201 once the message is stored and routed, 200 if it had been before.

    The reply to a list of messages is a list of such replies, each with its ``status``: 200 if each
    was routed, otherwise 207. With ``?dry_run`` nothing is sent.

    The body is read as a stream, so that one that is too large is refused as soon as that is known.
    Browsers name a page's site (``Origin``), and pages may not publish: otherwise any site could
    make the browser of someone in the newsroom do it.
    """

    def initialize(
        self,
        receipts: Receipts,
        repeats: Repeats,
        topics: TopicTable,
        access: PublishAccess,
        limits: MessageLimits,
        draining: Callable[[], bool],
        login: str | None,
    ) -> None:
        """Set these; ``login`` is the frontdesk's own user at the broker. Called by Tornado."""
        self._receipts = receipts
        self._repeats = repeats
        self._topics = topics
        self._access = access
        self._limits = limits
        self._draining = draining
        self._login = login
        self._dry_run = False
        self._answered: list[int] = []
        self._chunks: list[bytes] = []
        self._size = 0
        assert isinstance(self.request.connection, HTTP1Connection)
        self.request.connection.set_max_body_size(_MAX_READ)

    def prepare(self) -> None:
        """Raise 405, 401, 403, 415, 503, 400 or 413, in this order. Called before the body."""
        if self.request.method != "POST":
            raise HttpProblem(405, "method_not_allowed", "POST a JSON object, or a list of them")
        caller = self._access.caller(self.request.headers)
        if caller is None:
            challenge = {"WWW-Authenticate": "Bearer"}
            why = self._access.refusal(self.request.headers)
            raise HttpProblem(401, "unauthorized", why, headers=challenge)
        self._caller = caller
        if "Origin" in self.request.headers:
            raise HttpProblem(403, "permission_denied", "web pages can't publish")
        content_type = self.request.headers.get("Content-Type", "")
        if content_type.split(";", 1)[0].strip().lower() != JSON:
            what = f"Content-Type must be {JSON}: curl -H 'Content-Type: {JSON}'"
            raise HttpProblem(415, "unsupported_media_type", what)
        if self._draining():
            raise HttpProblem(503, "draining", "this frontdesk is going away", headers=RETRY)
        self._check_size(_length(self.request.headers.get("Content-Length", "0")))

    def data_received(self, chunk: bytes) -> None:
        """Add a part of the body. Called by Tornado."""
        # An exception here would close the connection, so post() refuses a body that is too large.
        self._size += len(chunk)
        if self._size <= MAX_REQUEST_BYTES:
            self._chunks.append(chunk)

    def _check_size(self, size: int) -> None:
        if size > MAX_REQUEST_BYTES:
            raise HttpProblem(413, "too_large", f"at most {MAX_REQUEST_BYTES} bytes")

    async def post(self) -> None:
        """Publish; 400 or 413 for the body; 403, 413, 422 or 503 by the receipt; 504 without."""
        self._check_size(self._size)
        check_query(self.request.query_arguments)
        self._dry_run = parse_dry_run(self.get_query_arguments("dry_run"))
        body = parse_document(b"".join(self._chunks))
        key = self.request.headers.get("Idempotency-Key")
        if not isinstance(body, list):
            status, document = await self._answer(body, key)
            self.write_document(document, status)
            return
        check_many(body, idempotency_key=key)
        # Messages are published in their order, each before the next.
        answers = await asyncio.gather(*map(self._answer_in_list, body))
        self._answered = [answer["status"] for answer in answers]
        good = all(status < HTTPStatus.MULTIPLE_CHOICES for status in self._answered)
        self.write_document(
            {"answers": answers}, HTTPStatus.OK if good else HTTPStatus.MULTI_STATUS
        )

    async def _answer_in_list(self, body: Any) -> dict[str, Any]:
        try:
            status, document = await self._answer(body, None)
        except HttpProblem as problem:
            return {"status": problem.status, **problem.document}
        return {"status": status, **document}

    async def _answer(self, body: Any, key: str | None) -> tuple[int, dict[str, Any]]:
        """Return status and document for one message; raise HttpProblem if it isn't routed."""
        start = time.monotonic()
        fresh_id, now_ms = secrets.token_hex(16), time.time_ns() // 1_000_000
        message = parse_publication(
            body,
            idempotency_key=key,
            fresh_id=fresh_id,
            now_ms=now_ms,
            limits=self._limits,
            caller=self._caller.app_id,
            login=self._login,
        )
        message_id = message.properties.message_id
        if self._dry_run:
            receipt = rehearse(message, self._topics, self._limits, now_ms=now_ms)
            self._check_receipt(receipt, message)
            policy = self._topics.known(message.topic)
            document = {"dry_run": True, "topic": message.topic, "class": policy.topic_class}
            # A message_id made here would differ each time, so it is left out.
            named = {"message_id": message_id, "identity": receipt.identity}
            return 200, document | (named if message_id != fresh_id else {})
        receipt = await self._publish(message)
        counters.PUBLISH_SECONDS.observe(time.monotonic() - start)
        self._check_receipt(receipt, message)
        document = {
            "id": receipt.id,
            "identity": receipt.identity,
            "message_id": message_id,
            "repeated": receipt.repeated,
        }
        return 200 if receipt.repeated else 201, document

    def _check_receipt(self, receipt: Receipt, message: Message) -> None:
        """Raise HttpProblem if ``receipt`` reports that ``message`` was rejected."""
        if receipt.status != "rejected":
            return
        reason = receipt.reason or "rejected"
        if reason == OVERLOAD:
            raise HttpProblem(
                503,
                reason,
                receipt.detail or "",
                headers=RETRY,
                extra={"message_id": message.properties.message_id},
            )
        detail = in_curls_words(receipt, message, self._topics)
        raise HttpProblem(_REFUSED.get(reason, 422), reason, detail)

    async def _publish(self, message: Message) -> Receipt:
        name = Name.of(message)
        publish = functools.partial(self._receipts.publish, message)
        return await self._repeats.publish_once(name, publish, clock=time.monotonic)

    def on_finish(self) -> None:
        """Count the reply by its status; or each reply in a list. Called by Tornado."""
        for status in self._answered or [self.get_status()]:
            counters.PUBLISHED.labels(str(status)).inc()


def _length(text: str) -> int:
    """Return the Content-Length in ``text``; Tornado checks it only after this handler."""
    try:
        return whole_number(text, 0, _MAX_LENGTH)
    except ValueError as exc:
        raise HttpProblem(400, "bad_request", "no such Content-Length") from exc
