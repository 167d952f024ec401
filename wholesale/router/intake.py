"""The first three stages, run where a delivery arrives: decode → validate → identify.

No code here waits or raises. A delivery becomes a job or a pending ack (it is bad, or was routed
before); or it joins a job that is under way, and there is nothing else to do.
"""

from __future__ import annotations

import logging

from newsfabric import topology
from newsfabric.amqp.message import SHOVELLED, Delivery, Properties
from newsfabric.errors import Rejected
from newsfabric.line_limits import LineLimit
from newsfabric.messages.envelope import MessageLimits, Submission, identity_text, receive
from newsfabric.messages.hops import hops, last_hop
from newsfabric.topics import TopicClass, TopicTable
from newsfabric.tracing.races import Races
from newsfabric.tracing.sightings import SeenCopy, Sighting
from wholesale.common.acceptance import check_rights, policy_of
from wholesale.router import counters
from wholesale.router.identities import DeliveryKind, Identified, KnownIdentities
from wholesale.router.jobs import Claim, PendingAck, RoutingJob, Source
from wholesale.router.receipts import ReceiptMaker, readable

logger = logging.getLogger(__name__)


class Intake:
    """The first three stages as one object: :meth:`examine` decides about each delivery."""

    def __init__(
        self,
        *,
        receipts: ReceiptMaker,
        topics: TopicTable,
        identities: KnownIdentities,
        limits: MessageLimits,
        races: Races,
    ) -> None:
        self._receipts = receipts
        self._topics = topics
        self._identities = identities
        self._limits = limits
        self._races = races
        self._differing = LineLimit()
        self._failing = LineLimit()

    def examine(
        self, delivery: Delivery, source: Source, *, now_ms: int, now: float
    ) -> RoutingJob | PendingAck | None:
        """Return a job to store, a pending ack, or None if ``delivery`` joined a job under way.

        ``now_ms`` is the wall clock, for texts and reports; ``now``, in seconds and monotonic, is
        the time by which repeats are recognised.
        """
        try:
            return self._examine(delivery, source, now_ms, now)
        except Rejected as problem:
            return self.refuse(_unread(delivery, source), problem, now_ms=now_ms)
        except Exception as exc:
            # A bug of this code must not make the broker deliver the same message for ever.
            suppressed = self._failing.may_log(now)
            if suppressed is not None:
                name = readable(delivery.message.properties.message_id or "(none)")
                text = "message_id %s: %r at its intake (and %d more)"
                about = {"message_id": name}
                logger.error(text, name, exc, suppressed, exc_info=True, extra=about)
            failure = Rejected(counters.INTERNAL, "the router failed on this message")
            return self.refuse(_unread(delivery, source), failure, now_ms=now_ms)

    def refuse(self, claim: Claim, problem: Rejected, *, now_ms: int) -> PendingAck:
        """Return the rejection of a message, with a receipt if one is wanted."""
        counters.REJECTED[problem.reason].inc()
        return PendingAck(self._receipts.rejected(claim.delivery, problem, now_ms=now_ms), [claim])

    def _examine(
        self, delivery: Delivery, source: Source, now_ms: int, now: float
    ) -> RoutingJob | PendingAck | None:
        submission = self._decode(delivery, now_ms)
        topic_class = self._validate(submission, delivery.message.properties)
        claim = Claim(delivery, source, submission.reply_to, submission.correlation_id)
        if self._came_as_copy(submission.topic, delivery.message.properties):
            return self._refuse_copy(claim, now_ms)
        found = self._identify(submission, claim, topic_class, now_ms, now)
        if found.found is DeliveryKind.ROUTED:
            return self._repeat(submission, claim, found.routed_ms)
        return found.job if found.found is DeliveryKind.NEW else None

    def _decode(self, delivery: Delivery, now_ms: int) -> Submission:
        counters.DECODE.entered()
        submission = receive(delivery.message, now_ms=now_ms, limits=self._limits)
        counters.DECODE.left()
        return submission

    def _validate(self, submission: Submission, properties: Properties) -> TopicClass:
        counters.VALIDATE.entered()
        policy = policy_of(self._topics, submission.topic)
        if submission.reply_to and not self._receipts.may_answer(submission.reply_to):
            raise Rejected("bad_property", "reply_to must be the name of a queue of your own")
        # Messages that enter the core without a shovel are the fabric's own: publishers can't log
        # in there.
        if SHOVELLED in properties.headers:
            check_rights(
                self._topics,
                app_id=submission.app_id,
                topic=submission.topic,
                user_id=properties.user_id,
            )
        counters.VALIDATE.left()
        return policy.topic_class

    def _came_as_copy(self, topic: str, properties: Properties) -> bool:
        """Return whether a shovel for copied classes brought the message, whose class isn't one.

        A publisher can cause that with header BCC: the first broker removes the header and leaves
        the topic as it was.
        """
        shovel = last_hop(properties.headers)
        if shovel is None or not topology.takes_copies_alone(shovel, self._receipts.region):
            return False
        return not self._topics.is_copied(topic)

    def _refuse_copy(self, claim: Claim, now_ms: int) -> PendingAck:
        # No receipt: the message itself arrived by the way for all classes, and a router replies to
        # it there. So no reply is wrong while a topic's class is being changed.
        problem = Rejected("cc_not_allowed", "a copy that came by a way that only gold takes")
        counters.REJECTED[problem.reason].inc()
        return PendingAck(
            [self._receipts.evidence(claim.delivery, problem, now_ms=now_ms)], [claim]
        )

    def _identify(
        self,
        submission: Submission,
        claim: Claim,
        topic_class: TopicClass,
        now_ms: int,
        now: float,
    ) -> Identified:
        counters.IDENTIFY.entered()
        self._sighted(submission, claim.delivery, now_ms)
        found = self._identities.identify(submission, claim, topic_class=topic_class, now=now)
        if found.found is DeliveryKind.NEW:
            counters.IDENTIFY.left()
            _count_claim(now_ms - submission.published_ms)
        else:
            self._count_repeat(submission, found, now)
        return found

    def _sighted(self, submission: Submission, delivery: Delivery, now_ms: int) -> None:
        """Count the copy, and remember it for ``newsfabric trace``."""
        # Only the last hop: a publisher could have written the others itself.
        copy = SeenCopy(now_ms, hops(delivery.message.properties.headers)[-1:])
        identity = submission.identity
        if not self._races.again(identity, copy):
            topic, message_id = submission.topic, submission.message_id
            published_ms = submission.published_ms
            self._races.first(Sighting(identity, topic, message_id, published_ms, [copy]))

    def _count_repeat(self, submission: Submission, found: Identified, now: float) -> None:
        before = found.found is DeliveryKind.ROUTED
        (counters.ROUTED_BEFORE if before else counters.UNDER_WAY).inc()
        if not found.differs:
            return
        counters.DIFFERING.inc()
        suppressed = self._differing.may_log(now)
        if suppressed is not None:
            name = identity_text(submission.identity)
            logger.warning(
                "message %s repeated with another topic or body: the first is kept (and %d more)",
                name,
                suppressed,
                extra={"identity": name, "message_id": submission.message_id},
            )

    def _repeat(self, submission: Submission, claim: Claim, routed_ms: int) -> PendingAck:
        if claim.reply_to is None:
            return PendingAck([], [claim])
        pending = self._receipts.routed(submission, claim, router_ms=routed_ms, repeated=True)
        return PendingAck([pending], [claim])


def _count_claim(age_ms: int) -> None:
    # A publisher's clock decides nothing, so its timestamps have a metric of their own. Without a
    # timestamp the message's age is 0.
    if age_ms < 0:
        counters.CLAIMED_AHEAD.inc()
    elif age_ms > 0:
        counters.CLAIMED_AGE.observe(age_ms / 1000)


def _unread(delivery: Delivery, source: Source) -> Claim:
    # The publisher's properties can't be trusted here; receipts.py reads reply_to with care.
    return Claim(delivery, source, None, None)
