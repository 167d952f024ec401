"""Receipts and rejections, as pending publishes. Pure.

A rejected message keeps its bytes and properties, except those that would act on the
broker once more: ``expiration`` (it would vanish from the queue that keeps it), ``user_id`` (it
isn't the router's) and the headers ``CC`` and ``BCC``. On redelivery it goes out plain: its own
headers may be what broke the link the first time, and a message must not come round for ever.
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
# Of the publisher's headers. With those that say why it stays below what a decoder looks into.
_MAX_KEPT: Final = MAX_TABLE_BYTES - 4096
_ACTING_HEADERS: Final = ("CC", "BCC")


@dataclasses.dataclass(frozen=True, slots=True)
class ReceiptMaker:
    """Makes the receipts and rejections of one router, in whose name they are.

    ``named_alone``: only a queue that a broker has named gets any, since publishers have no other.
    """

    region: str
    router: str
    named_alone: bool = False

    def may_answer(self, reply_to: str) -> bool:
        """Whether a receipt may go to the queue ``reply_to``: none of the fabric's own."""
        if self.named_alone:
            return reply_to.startswith(topology.NAMED_BY_BROKER)
        return not reply_to.startswith(topology.OWN_QUEUES)

    def routed(
        self, submission: Submission, claim: Claim, *, router_ms: int, repeated: bool
    ) -> PendingPublish:
        """The receipt for ``claim``: stored and routed at ``router_ms``. It must want one."""
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
        """The receipt for ``claim``: dropped unread for want of room. It must want one."""
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
        """What is published of a message that can't be accepted: to ``rejected``, and a receipt."""
        publishes = [self.evidence(delivery, problem, now_ms=now_ms)]
        properties = delivery.message.properties
        reply_to = properties.reply_to
        if reply_to and _is_short_text(reply_to) and self.may_answer(reply_to):
            publishes.append(self._refusal(delivery.message, problem, reply_to))
        return publishes

    def evidence(self, delivery: Delivery, problem: Rejected, *, now_ms: int) -> PendingPublish:
        """The publish to ``rejected`` alone."""
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
    """``text`` with what isn't UTF-8 (surrogate escapes, PEP 383) written as ``\\udcXX``."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _is_short_text(text: str) -> bool:
    try:
        return len(text.encode("utf-8")) <= _MAX_SHORT
    except UnicodeEncodeError:
        return False


def _inert(headers: Mapping[str, Any]) -> dict[str, Any]:
    """``headers`` without those that act, or what there is room for of their bytes."""
    kept = {name: value for name, value in headers.items() if name not in _ACTING_HEADERS}
    unread = kept.get(OVERSIZE)
    raw = unread if isinstance(unread, Undecodable) else encode_table(kept)[4:]
    return kept if len(raw) <= _MAX_KEPT else {OVERSIZE: Undecodable(raw[:_MAX_KEPT])}
