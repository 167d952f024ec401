"""How a job ends: routed, or given up. One place, so that no end forgets a part of it."""

from __future__ import annotations

import logging
from collections.abc import Callable

from newsfabric.envelope import Envelope, identity_text, ms_of_id
from newsfabric.errors import Rejected
from newsfabric.otel_tracer import Tracer
from newsfabric.seldom import Seldom
from newsfabric.sightings import Sightings
from wholesale.progress import Progress
from wholesale.router import counters
from wholesale.router.answering import Answering
from wholesale.router.identities import Identities
from wholesale.router.intake import Intake
from wholesale.router.jobs import Answer, Job
from wholesale.router.letters import Sender
from wholesale.router.spans import spans_of
from wholesale.router.traffic import Traffic

logger = logging.getLogger(__name__)


class Settling:
    """Ends jobs: tells the window and the stream, hands the answers on."""

    def __init__(
        self,
        *,
        sender: Sender,
        identities: Identities,
        intake: Intake,
        answering: Answering,
        progress: Progress,
        now_ms: Callable[[], int],
        now: Callable[[], float],
        sightings: Sightings,
        tracer: Tracer,
        traffic: Traffic,
    ) -> None:
        self._sender = sender
        self._identities = identities
        self._intake = intake
        self._answering = answering
        self._progress = progress
        self._now_ms = now_ms
        self._now = now
        self._sightings = sightings
        self._tracer = tracer
        self._traffic = traffic
        self._failing = Seldom()

    def routed(self, job: Job) -> None:
        """``job`` is stored and both exchanges have confirmed it."""
        assert job.envelope is not None
        settle(job)
        now = self._now()
        counters.SECONDS.observe(now - job.started)
        self._traffic.routed(job.submission, now)
        router_ms = ms_of_id(job.envelope.id)
        self._identities.routed(job, router_ms=router_ms, now_ms=self._now_ms())
        self._sighted(job, job.envelope)
        self._traced(job)
        letters = [
            self._sender.routed(job.submission, claim, router_ms=router_ms, repeated=n > 0)
            for n, claim in enumerate(job.claims)
            if claim.reply_to is not None
        ]
        self._end(job, Answer(letters, job.claims))

    def failed(self, job: Job, problem: Exception) -> None:
        """``job`` met an error that isn't known: reject it, or it would come round for ever."""
        unsaid = self._failing.may_say(self._now())
        if unsaid is not None:
            name = identity_text(job.submission.identity)
            text = "message %s: %r while it was routed (and %d more)"
            about = {"identity": name, "message_id": job.submission.message_id}
            logger.error(text, name, problem, unsaid, exc_info=problem, extra=about)
        self._traced(job, "the router failed on this message")
        void(job)
        if job.stored_ms is not None:
            settle(job)
        self._identities.given_up(job)
        rejected = Rejected(counters.INTERNAL, "the router failed on this message")
        for claim in job.claims:
            self._answering.put(self._intake.refuse(claim, rejected, now_ms=self._now_ms()))
        self._progress.end()

    def abandoned(self, job: Job) -> None:
        """Nobody here owes anything for ``job`` any more: the broker delivers it anew."""
        self._identities.given_up(job)
        self._progress.end()

    def shed(self, job: Job) -> None:
        """``job`` isn't numbered yet and there is no room for it: whoever asked is told."""
        counters.SHED.inc()
        if (sighting := self._sightings.get(job.submission.identity)) is not None:
            sighting.steps["shed"] = self._now_ms()
        self._traced(job, "dropped for want of room")
        self._identities.given_up(job)
        letters = [
            self._sender.overloaded(job.submission, claim)
            for claim in job.claims
            if claim.reply_to is not None
        ]
        self._end(job, Answer(letters, job.claims))

    def given_back(self, job: Job) -> None:
        """``job``'s log was closed by others: the broker delivers it anew, for another number."""
        counters.GIVEN_BACK.inc()
        self._identities.given_up(job)
        for claim in job.claims:
            claim.give_back()
        self._progress.end()

    def expired(self, job: Job) -> None:
        """``job`` has waited for too long. It ends as it would have in the broker's queue: without
        a word, and whoever has no receipt sends it again.

        It may have a number, and be stored. In its log that number is a message like any other
        (it is looked up before anybody is given it). In ticks it is void, for gateways of the
        release before: one that found it in the journal could publish it to those who have had
        another copy.
        """
        counters.EXPIRED.inc()
        if (sighting := self._sightings.get(job.submission.identity)) is not None:
            sighting.steps["expired"] = self._now_ms()
        self._traced(job, "waited for too long")
        void(job)
        if job.stored_ms is not None:
            settle(job)
        self._identities.given_up(job)
        self._end(job, Answer([], job.claims))

    def _sighted(self, job: Job, envelope: Envelope) -> None:
        sighting = self._sightings.get(envelope.identity)
        if sighting is None:
            return
        sighting.id, sighting.epoch, sighting.seq = envelope.id, envelope.epoch, envelope.seq
        if job.stored_ms is not None:
            sighting.steps["stored"] = job.stored_ms
        sighting.steps["routed"] = self._now_ms()

    def _traced(self, job: Job, error: str = "") -> None:
        submission = job.submission
        context = self._tracer.context(submission.identity, submission.traceparent)
        if context is None:
            return
        sighting, router = self._sightings.get(submission.identity), self._sender.router
        self._tracer.add(
            spans_of(job, sighting, context, router, now_ms=self._now_ms(), error=error)
        )

    def _end(self, job: Job, answer: Answer) -> None:
        self._answering.put(answer)
        self._progress.end()


def settle(job: Job) -> None:
    """``job``'s number needs nothing more (:mod:`wholesale.router.numbering`)."""
    assert job.stream is not None
    assert job.envelope is not None
    job.stream.numbering.settle(job.envelope.seq)


def void(job: Job) -> None:
    """Nothing will come as ``job``'s number, if it has one: say so in ticks."""
    if job.envelope is not None:
        assert job.stream is not None
        job.stream.void(job.envelope.seq)
        counters.VOID.inc()
