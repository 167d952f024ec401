"""A process's report of its own state, sent each second over the region's core.

No code waits for a report and none depends on it: it is made, given to the broker, and counted as
lost if the link is down, the broker is out of room or two reports are unconfirmed already. Errors
are a number in ``/metrics``, never a line each second.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from prometheus_client import Counter

from newsfabric.amqp import ConfirmingPublisher, Links
from newsfabric.errors import LinkError
from newsfabric.line_limits import LineLimit
from newsfabric.messages.reports import (
    CERTIFICATE_ENDS,
    MAX_FIGURES,
    MAX_REASONS,
    MAX_TEXT,
    ProcessKind,
    Report,
    encode_report,
)
from newsfabric.process.figures import ProcessFigures
from newsfabric.process.service import Readiness
from newsfabric.process.version import version
from newsfabric.topology import UPSTREAM

logger = logging.getLogger(__name__)

EVERY: Final = 1.0
IN_FLIGHT: Final = 2

# Fields of :class:`Report` that a process adds to its report.
More = Callable[[], Awaitable[dict[str, Any]]]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Speaker:
    """The process that reports. ``login`` is its user at the core (None: a user without a name)."""

    kind: ProcessKind
    name: str
    region: str
    login: str | None = None
    started_ms: int = dataclasses.field(default_factory=lambda: time.time_ns() // 1_000_000)


def make_report(
    speaker: Speaker,
    readiness: Readiness,
    figures: dict[str, float],
    *,
    draining: bool,
    sent_ms: int,
    **more: Any,
) -> Report:
    """Return ``speaker``'s report at ``sent_ms`` (wall clock); ``more`` are other fields of it."""
    state = "draining" if draining else "ready" if readiness.ready else "starting"
    fields: dict[str, Any] = {
        "region": speaker.region,
        "name": speaker.name,
        "kind": speaker.kind,
        "version": version(),
        "started_ms": speaker.started_ms,
        "sent_ms": sent_ms,
        "state": state,
        "waiting_for": tuple(why[:MAX_TEXT] for why in readiness.waiting_for[:MAX_REASONS]),
        "figures": figures,
    }
    return Report(**(fields | more))


class Reporting:
    """The reports of one process. ``outcomes`` counts them, by label ``outcome``."""

    def __init__(
        self,
        speaker: Speaker,
        *,
        figures: ProcessFigures,
        readiness: Callable[[], Readiness],
        draining: Callable[[], bool] = lambda: False,
        more: More | None = None,
        outcomes: Counter,
        on_report: Callable[[Report], None] | None = None,
    ) -> None:
        """Set up; ``on_report``, for a process that shows itself, gets each report, sent or not."""
        self.speaker = speaker
        self._figures = figures
        self._readiness = readiness
        self._draining = draining
        self._more = more
        self._outcomes = outcomes
        self._on_report = on_report
        self._failing = LineLimit(every=60.0)

    async def run(self, links: Links) -> None:
        """Report over ``links``, the region's core, each second until cancelled.

        A process that drains reports that once more at the end, since the drain may have taken less
        than a second: a draining process that falls silent has left, and isn't missed.
        """
        publisher = await links.publisher(in_flight=IN_FLIGHT)
        loop = asyncio.get_running_loop()
        try:
            while True:
                began = loop.time()
                await self.once(publisher)
                await asyncio.sleep(max(0.0, EVERY - (loop.time() - began)))
        finally:
            if self._draining():
                await self.once(publisher)

    async def once(self, publisher: ConfirmingPublisher) -> None:
        """Make a report and send it; all errors are counted."""
        try:
            report = await self.report()
            if self._on_report is not None:
                self._on_report(report)
            # No task awaits the confirm: at most two are unconfirmed.
            publisher.publish_nowait(UPSTREAM, encode_report(report, user_id=self.speaker.login))
        except (LinkError, TimeoutError):
            self._outcomes.labels("lost").inc()
        except Exception as exc:
            # A bug in a mere observer must not end the observed process.
            self._outcomes.labels("failed").inc()
            suppressed = self._failing.may_log(asyncio.get_running_loop().time())
            if suppressed is not None:
                logger.exception("report failed (and %d more): %r", suppressed, exc)
        else:
            self._outcomes.labels("sent").inc()

    async def report(self) -> Report:
        """Return the report now. Figures of ``more`` are added to its own, or replace them."""
        more = {} if self._more is None else await self._more()
        own = self._figures.read(asyncio.get_running_loop().time())
        figures = _beside(own, more.pop("figures", {}))
        return make_report(
            self.speaker,
            self._readiness(),
            dict(itertools.islice(figures.items(), MAX_FIGURES)),
            draining=self._draining(),
            sent_ms=time.time_ns() // 1_000_000,
            **more,
        )


def _beside(own: dict[str, float], others: Mapping[str, float]) -> dict[str, float]:
    """Return ``own`` and ``others`` merged; of two certificates the one that ends first."""
    sooner = {
        name: min(ends, others[name])
        for name, ends in own.items()
        if name in others and name.startswith(CERTIFICATE_ENDS)
    }
    return {**own, **others, **sooner}
