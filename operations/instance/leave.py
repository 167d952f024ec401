"""``leave``: notices that AWS ends this box, drains it, and tells AWS when that is done.

The drain is the agent's and the gateway's own: they are stopped, the agent first, as
``drain-retail.yml`` does it. :mod:`operations.instance.leaving` decides; this asks and acts. AWS
that can't be reached doesn't keep the box from draining: the hook ends by its own time then.

While the box stays, it has the secrets that all boxes share read again every few minutes
(:func:`operations.instance.settle.renew`, in a unit of its own, which may write). Not in a drain:
the gateway is left alone then.
"""

from __future__ import annotations

import logging
import math
import subprocess
from collections.abc import Callable
from typing import Final, Protocol

from newsfabric.errors import NewsfabricError
from newsfabric.line_limits import RepeatedFailures
from operations.instance.cloud import CloudError
from operations.instance.leaving import Leaving, Step
from operations.instance.metadata import MetadataError

logger = logging.getLogger(__name__)

POLL_SECONDS: Final = 5.0
#: So long a box may have a password of the store that is no more.
RENEW_SECONDS: Final = 300.0
RENEW: Final = "newsfabric-renew.service"
#: In this order: the agent needs the gateway for its drain.
_STOP: Final = ("newsfabric-retail-agent.service", "newsfabric-gateway.service")


class InstanceMetadata(Protocol):
    """The machine's metadata."""

    def target_state(self) -> str | None:
        """Where the group is bringing this instance."""
        ...


class LifecycleHook(Protocol):
    """The hook that waits for this box."""

    def beat(self, group: str, hook: str, box: str) -> None:
        """Say that the drain goes on, which puts off the hook's time-out."""
        ...

    def complete(self, group: str, hook: str, box: str) -> None:
        """Say that the instance may be ended."""
        ...


class BoxDrain(Protocol):
    """The box's own drain."""

    def begin(self) -> None:
        """Begin to drain, and return at once."""
        ...

    def over(self) -> bool:
        """Whether it has ended, well or not."""
        ...


class StoppedServices:
    """Drains by stopping the services, one after the other, in the background."""

    def __init__(self) -> None:
        self._left = list(_STOP)
        self._stopping: subprocess.Popen[bytes] | None = None

    def begin(self) -> None:
        """Begin to stop the first service, and return at once."""
        self._next()

    def over(self) -> bool:
        """Whether all have stopped."""
        if self._stopping is not None and self._stopping.poll() is not None:
            if self._stopping.returncode != 0:
                logger.warning("systemctl stop: exit code %d", self._stopping.returncode)
            self._next()
        return self._stopping is None

    def _next(self) -> None:
        unit = self._left.pop(0) if self._left else None
        self._stopping = None if unit is None else subprocess.Popen(["systemctl", "stop", unit])


class Watch:
    """Watches for the end of ``box``, whose hook is ``hook`` of ``group``."""

    def __init__(
        self,
        leaving: Leaving,
        *,
        place: tuple[str, str, str],
        metadata: InstanceMetadata,
        cloud: LifecycleHook,
        drain: BoxDrain,
        renew: Callable[[], None],
    ) -> None:
        self._leaving, self._place = leaving, place
        self._metadata, self._cloud, self._drain = metadata, cloud, drain
        self._renew, self._renewed = renew, -math.inf
        self._draining = False
        self._failures = RepeatedFailures()

    def look(self, now: float) -> bool:
        """Look once at ``now`` and act; whether AWS has been told that the box may go."""
        drained = self._draining and self._drain.over()
        match self._leaving.step(now, self._state(now), drained=drained):
            case Step.DRAIN:
                logger.info("AWS ends this box: it drains")
                self._draining = True
                self._drain.begin()
            case Step.BEAT:
                self._tell(now, self._cloud.beat)
            case Step.COMPLETE:
                if not drained:
                    logger.warning("the drain has had its time: the box goes as it is")
                if self._tell(now, self._cloud.complete):
                    self._leaving.told()
            case Step.GONE:
                return True
            case Step.STAY:
                self._have_renewed(now)
            case Step.WAIT:
                pass
        return False

    def _have_renewed(self, now: float) -> None:
        if now - self._renewed < RENEW_SECONDS:
            return
        self._renewed = now
        try:
            self._renew()
        except NewsfabricError as exc:
            self._complain(exc, now)

    def _state(self, now: float) -> str | None:
        try:
            return self._metadata.target_state()
        except MetadataError as exc:
            self._complain(exc, now)
            return None

    def _tell(self, now: float, call: Callable[[str, str, str], None]) -> bool:
        try:
            call(*self._place)
        except CloudError as exc:
            self._complain(exc, now)
            return False
        self._failures.ended()
        return True

    def _complain(self, error: NewsfabricError, now: float) -> None:
        if self._failures.should_log(str(error), now):
            logger.warning("%s", error)
