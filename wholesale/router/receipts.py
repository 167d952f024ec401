"""Receipts and rejections, as pending publishes. Pure.

A rejected message keeps its bytes and properties, except those that would act on the broker again:
``expiration`` (it would vanish from the queue that keeps it), ``user_id`` (not the router's own)
and the headers ``CC`` and ``BCC``. After a redelivery it is sent plain: its own headers may have
broken the link the first time, and a message must not circulate for ever.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from newsfabric import topology
from newsfabric.amqp.fields import MAX_TABLE_BYTES, OVERSIZE, encode_table
from newsfabric.amqp.message import Delivery, Message, Properties, Undecodable
from newsfabric.errors import Rejected
from newsfabric.messages import control
from newsfabric.messages.envelope import Submission, id_of, identity_text
from wholesale.common.outgoing import PendingPublish
from wholesale.router.jobs import Claim

# AMQP 0-9-1 section 4.2.5.3: short strings have at most 255 octets.
_MAX_SHORT: Final = 255
_MAX_DETAIL: Final = 500
# Bytes of the publisher's headers to keep. Together with the router's own headers they stay below
# the limit of a decoder.
_MAX_KEPT: Final = MAX_TABLE_BYTES - 4096
_ACTING_HEADERS: Final = ("CC", "BCC")


@dataclasses.dataclass(frozen=True, slots=True)
class ReceiptMaker:
    """Makes receipts and rejections in the name of one router.

    ``named_alone``: receipts are sent only to queues that a broker has named, since publishers have
    no others.
    """

    region: str
    router: str
    named_alone: bool = False

    def may_answer(self, reply_to: str) -> bool:
        """Return whether a receipt may be sent to queue ``reply_to``: not to the fabric's own."""
        if self.named_alone:
            return reply_to.startswith(topology.NAMED_BY_BROKER)
        return not reply_to.startswith(topology.OWN_QUEUES)

    def routed(
        self, submission: Submission, claim: Claim, *, router_ms: int, repeated: bool
    ) -> PendingPublish:
        """Return the receipt for ``claim``, which wants one: stored and routed at ``router_ms``."""
        assert claim.reply_to is not None
        receipt = control.Receipt(
            status="routed",
            region=self.region,
            router=self.router,
            topic=submission.topic,
            message_id=submission.message_id,
            id=id_of(router_ms, submission.identity),
            identity=identity_text(submission.identity),
            repeated=repeated,
        )
        message = control.encode_receipt(
            receipt, reply_to=claim.reply_to, correlation_id=claim.correlation_id
        )
        return PendingPublish(topology.RECEIPTS, message)

    def overloaded(self, submission: Submission, claim: Claim) -> PendingPublish:
        """Return the receipt "dropped for lack of room" for ``claim``, which wants one."""
        assert claim.reply_to is not None
        receipt = control.Receipt(
            status="rejected",
            region=self.region,
            router=self.router,
            topic=submission.topic,
            message_id=submission.message_id,
            reason=control.OVERLOAD,
            detail="messages of class bronze are dropped at the moment; send it again later",
        )
        message = control.encode_receipt(
            receipt, reply_to=claim.reply_to, correlation_id=claim.correlation_id
        )
        return PendingPublish(topology.RECEIPTS, message)

    def rejected(
        self, delivery: Delivery, problem: Rejected, *, now_ms: int
    ) -> list[PendingPublish]:
        """Return the publishes of a rejected message: to ``rejected``, and perhaps a receipt."""
        publishes = [self.evidence(delivery, problem, now_ms=now_ms)]
        properties = delivery.message.properties
        reply_to = properties.reply_to
        if reply_to and _is_short_text(reply_to) and self.may_answer(reply_to):
            publishes.append(self._refusal(delivery.message, problem, reply_to))
        return publishes

    def evidence(self, delivery: Delivery, problem: Rejected, *, now_ms: int) -> PendingPublish:
        """Return only the publish to ``rejected``."""
        message = delivery.message
        ours = {
            "reason": problem.reason,
            "detail": readable(problem.detail)[:_MAX_DETAIL],
            "topic": readable(message.topic),
            "region": self.region,
            "router": self.router,
            "rejected_at": now_ms,
        }
        plain = Message(problem.reason, message.body, Properties(headers=ours))
        original = message.properties
        if delivery.redelivered:
            return PendingPublish(topology.REJECTED, plain)
        kept = dataclasses.replace(
            original, expiration=None, user_id=None, headers={**_inert(original.headers), **ours}
        )
        return PendingPublish(topology.REJECTED, Message(problem.reason, message.body, kept), plain)

    def _refusal(self, message: Message, problem: Rejected, reply_to: str) -> PendingPublish:
        properties = message.properties
        receipt = control.Receipt(
            status="rejected",
            region=self.region,
            router=self.router,
            topic=readable(message.topic),
            message_id=properties.message_id and readable(properties.message_id),
            reason=problem.reason,
            detail=readable(problem.detail)[:_MAX_DETAIL],
        )
        correlation_id = properties.correlation_id
        if correlation_id and not _is_short_text(correlation_id):
            correlation_id = None
        answer = control.encode_receipt(receipt, reply_to=reply_to, correlation_id=correlation_id)
        return PendingPublish(topology.RECEIPTS, answer)


def readable(text: str) -> str:
    """Return ``text`` with bytes that aren't UTF-8 (surrogate escapes, PEP 383) as ``\\udcXX``."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _is_short_text(text: str) -> bool:
    try:
        return len(text.encode("utf-8")) <= _MAX_SHORT
    except UnicodeEncodeError:
        return False


def _inert(headers: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``headers`` without those that act, or the first part of their bytes if too long."""
    kept = {name: value for name, value in headers.items() if name not in _ACTING_HEADERS}
    unread = kept.get(OVERSIZE)
    raw = unread if isinstance(unread, Undecodable) else encode_table(kept)[4:]
    return kept if len(raw) <= _MAX_KEPT else {OVERSIZE: Undecodable(raw[:_MAX_KEPT])}
