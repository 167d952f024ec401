"""The ends of a job: routed, or given up. In one module, so that no end forgets a part of it."""

from __future__ import annotations

import logging
from collections.abc import Callable

from newsfabric.errors import Rejected
from newsfabric.line_limits import LineLimit
from newsfabric.messages.envelope import Envelope, identity_text, ms_of_id
from newsfabric.tracing.otel_tracer import Tracer
from newsfabric.tracing.sightings import Sightings
from wholesale.common.progress import PendingOperations
from wholesale.router import counters
from wholesale.router.acknowledging import Acknowledger
from wholesale.router.identities import KnownIdentities
from wholesale.router.intake import Intake
from wholesale.router.jobs import PendingAck, RoutingJob
from wholesale.router.receipts import ReceiptMaker
from wholesale.router.spans import spans_of
from wholesale.router.traffic import Traffic

logger = logging.getLogger(__name__)


class Settling:
    """Ends jobs: updates window and log, and passes pending acks to the acknowledger."""

    def __init__(
        self,
        *,
        receipts: ReceiptMaker,
        identities: KnownIdentities,
        intake: Intake,
        acknowledger: Acknowledger,
        progress: PendingOperations,
        now_ms: Callable[[], int],
        now: Callable[[], float],
        sightings: Sightings,
        tracer: Tracer,
        traffic: Traffic,
    ) -> None:
        self._receipts = receipts
        self._identities = identities
        self._intake = intake
        self._acknowledger = acknowledger
        self._progress = progress
        self._now_ms = now_ms
        self._now = now
        self._sightings = sightings
        self._tracer = tracer
        self._traffic = traffic
        self._failing = LineLimit()

    def routed(self, job: RoutingJob) -> None:
        """End ``job``: it is stored, and both exchanges have confirmed it."""
        assert job.envelope is not None
        settle(job)
        now = self._now()
        counters.SECONDS.observe(now - job.started)
        self._traffic.routed(job.submission, now)
        router_ms = ms_of_id(job.envelope.id)
        self._identities.routed(job, router_ms=router_ms, now=now)
        self._sighted(job, job.envelope)
        self._traced(job)
        publishes = [
            self._receipts.routed(job.submission, claim, router_ms=router_ms, repeated=n > 0)
            for n, claim in enumerate(job.claims)
            if claim.reply_to is not None
        ]
        self._end(job, PendingAck(publishes, job.claims))

    def failed(self, job: RoutingJob, problem: Exception) -> None:
        """End ``job`` after an unknown error: reject it, or it would circulate for ever."""
        suppressed = self._failing.may_log(self._now())
        if suppressed is not None:
            name = identity_text(job.submission.identity)
            text = "message %s: %r while routing it (and %d more)"
            about = {"identity": name, "message_id": job.submission.message_id}
            logger.error(text, name, problem, suppressed, exc_info=problem, extra=about)
        self._traced(job, "the router failed on this message")
        if job.stored_ms is not None:
            settle(job)
        self._identities.given_up(job)
        rejected = Rejected(counters.INTERNAL, "the router failed on this message")
        for claim in job.claims:
            self._acknowledger.add_ack(self._intake.refuse(claim, rejected, now_ms=self._now_ms()))
        self._progress.end()

    def abandoned(self, job: RoutingJob) -> None:
        """End ``job`` without acknowledgement: it has no claims, and the broker repeats it."""
        self._identities.given_up(job)
        self._progress.end()

    def shed(self, job: RoutingJob) -> None:
        """End ``job`` for lack of room, before it gets a number; send receipts if wanted."""
        counters.SHED.inc()
        if (sighting := self._sightings.get(job.submission.identity)) is not None:
            sighting.steps["shed"] = self._now_ms()
        self._traced(job, "dropped for want of room")
        self._identities.given_up(job)
        publishes = [
            self._receipts.overloaded(job.submission, claim)
            for claim in job.claims
            if claim.reply_to is not None
        ]
        self._end(job, PendingAck(publishes, job.claims))

    def requeued(self, job: RoutingJob) -> None:
        """Give ``job`` back to the broker, which delivers it again.

        Its log was closed by others, so it needs another number; or nothing may be numbered here.
        """
        counters.REQUEUED.inc()
        self._identities.given_up(job)
        for claim in job.claims:
            claim.requeue()
        self._progress.end()

    def expired(self, job: RoutingJob) -> None:
        """End ``job``, which has waited for too long, without a receipt; its publisher sends again.

        A message that expires in the broker's queue ends in the same way. If ``job`` has a number
        and is stored, its number is a message like any other: copies are looked up before a reader
        gets it.
        """
        counters.EXPIRED.inc()
        if (sighting := self._sightings.get(job.submission.identity)) is not None:
            sighting.steps["expired"] = self._now_ms()
        self._traced(job, "waited for too long")
        if job.stored_ms is not None:
            settle(job)
        self._identities.given_up(job)
        self._end(job, PendingAck([], job.claims))

    def _sighted(self, job: RoutingJob, envelope: Envelope) -> None:
        sighting = self._sightings.get(envelope.identity)
        if sighting is None:
            return
        sighting.id, sighting.epoch, sighting.seq = envelope.id, envelope.epoch, envelope.seq
        if job.stored_ms is not None:
            sighting.steps["stored"] = job.stored_ms
        sighting.steps["routed"] = self._now_ms()

    def _traced(self, job: RoutingJob, error: str = "") -> None:
        submission = job.submission
        context = self._tracer.context(submission.identity, submission.traceparent)
        if context is None:
            return
        sighting, router = self._sightings.get(submission.identity), self._receipts.router
        self._tracer.add(
            spans_of(job, sighting, context, router, now_ms=self._now_ms(), error=error)
        )

    def _end(self, job: RoutingJob, ack: PendingAck) -> None:
        self._acknowledger.add_ack(ack)
        self._progress.end()


def settle(job: RoutingJob) -> None:
    """Settle the number of ``job``: it is finished (:mod:`wholesale.router.numbering`)."""
    assert job.stream is not None
    assert job.envelope is not None
    job.stream.numbering.settle(job.envelope.seq)
