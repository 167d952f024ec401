"""``leave``: notices that AWS ends this box, drains it, and notifies AWS at the end.

The drain is that of agent and gateway: they are stopped, the agent first, as ``drain-retail.yml``
does. :mod:`operations.instance.leaving` decides; this module asks and acts. A box drains even if
AWS can't be reached: then the hook ends by its time-out.

While the box stays, the secrets that all boxes share are read again every few minutes
(:func:`operations.instance.settle.renew`, in a unit of its own, which may write). Not in a drain:
the gateway isn't disturbed then.
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
from operations.instance.leaving import Leaving, LeavingStep
from operations.instance.metadata import MetadataError

logger = logging.getLogger(__name__)

POLL_SECONDS: Final = 5.0
#: The longest time for which a box may have a replaced password of the store.
RENEW_SECONDS: Final = 300.0
RENEW: Final = "newsfabric-renew.service"
#: In this order: the agent needs the gateway for its drain.
_STOP: Final = ("newsfabric-retail-agent.service", "newsfabric-gateway.service")


class InstanceMetadata(Protocol):
    """The machine's metadata."""

    def target_state(self) -> str | None:
        """Return the lifecycle state that the group is bringing this instance to."""
        ...


class LifecycleHook(Protocol):
    """The hook that waits for this box."""

    def beat(self, group: str, hook: str, box: str) -> None:
        """Report that the drain continues, which restarts the hook's time-out."""
        ...

    def complete(self, group: str, hook: str, box: str) -> None:
        """Report that the instance may be ended."""
        ...


class BoxDrain(Protocol):
    """The box's own drain."""

    def begin(self) -> None:
        """Begin to drain, and return at once."""
        ...

    def over(self) -> bool:
        """Return whether the drain has ended, with success or not."""
        ...


class StoppedServices:
    """A drain that stops the services, one after the other, in the background."""

    def __init__(self) -> None:
        self._left = list(_STOP)
        self._stopping: subprocess.Popen[bytes] | None = None

    def begin(self) -> None:
        """Begin to stop the first service, and return at once."""
        self._next()

    def over(self) -> bool:
        """Return whether all have stopped."""
        if self._stopping is not None and self._stopping.poll() is not None:
            if self._stopping.returncode != 0:
                logger.warning("systemctl stop: exit code %d", self._stopping.returncode)
            self._next()
        return self._stopping is None

    def _next(self) -> None:
        unit = self._left.pop(0) if self._left else None
        self._stopping = None if unit is None else subprocess.Popen(["systemctl", "stop", unit])


class EndWatch:
    """A watch for the end of ``box``; ``place`` is its group, the lifecycle hook and its id."""

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

    def check(self, now: float) -> bool:
        """Look once at ``now`` and act; return whether AWS was notified that the box may go."""
        drained = self._draining and self._drain.over()
        match self._leaving.step(now, self._state(now), drained=drained):
            case LeavingStep.DRAIN:
                logger.info("AWS ends this box: draining")
                self._draining = True
                self._drain.begin()
            case LeavingStep.BEAT:
                self._notify_aws(now, self._cloud.beat)
            case LeavingStep.COMPLETE:
                if not drained:
                    logger.warning("drain timed out: the box ends with its readers")
                if self._notify_aws(now, self._cloud.complete):
                    self._leaving.note_completed()
            case LeavingStep.GONE:
                return True
            case LeavingStep.STAY:
                self._have_renewed(now)
            case LeavingStep.WAIT:
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

    def _notify_aws(self, now: float, call: Callable[[str, str, str], None]) -> bool:
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
