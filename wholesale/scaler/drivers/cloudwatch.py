"""What a scaler wants, as CloudWatch metrics: for alarms, and for policies of somebody else.

The decision that one would question: each scaler says its own numbers, with its name as a
dimension. Two that said the same metric would hide it when they disagree.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

from newsfabric.line_limits import RepeatedFailures
from wholesale.scaler.drivers import DriverError

if TYPE_CHECKING:
    from wholesale.scaler.drivers.aws import Cloud

logger = logging.getLogger(__name__)

# CloudWatch's own resolution.
EVERY: Final = 60.0
TIMEOUT: Final = 20.0


class Watching(Protocol):
    """Tells somebody what a scaler wants, again and again."""

    async def run(self, document: Callable[[], dict[str, Any]]) -> None:
        """Tell of ``document()`` until cancelled. What can't be told is lost."""


class CloudWatch:
    """Puts metrics into ``namespace``. ``cloud`` is the caller's."""

    def __init__(self, namespace: str, cloud: Cloud, *, every: float = EVERY) -> None:
        self._namespace = namespace
        self._cloud = cloud
        self._every = every
        self._failures = RepeatedFailures()

    async def run(self, document: Callable[[], dict[str, Any]]) -> None:
        """As :meth:`Watching.run`, every ``every`` seconds."""
        while True:
            await self.tell(document())
            await asyncio.sleep(self._every)

    async def tell(self, document: dict[str, Any]) -> bool:
        """Put what ``document`` says; whether CloudWatch took it."""
        data = metric_data(document)
        if not data:
            return False
        try:
            async with asyncio.timeout(TIMEOUT):
                await self._cloud.ask(
                    lambda client: client.put_metric_data(
                        Namespace=self._namespace, MetricData=data
                    )
                )
        except (DriverError, TimeoutError) as exc:
            if self._failures.should_log(str(exc), asyncio.get_running_loop().time()):
                logger.warning("CloudWatch: %s", exc)
            return False
        self._failures.ended()
        return True


def metric_data(document: dict[str, Any]) -> list[dict[str, Any]]:
    """The metrics in a ``/scale`` document; none while the scaler is deaf. Pure."""
    if document["wanted"] is None:
        return []
    said = {line["name"]: line["value"] for line in document["sums"]}
    values = {
        "WantedBoxes": document["wanted"],
        "ServingBoxes": document["counts"].get("ready", 0),
        "FailedBoxes": document["counts"].get("failed", 0),
        "SilentBoxes": document["counts"].get("silent", 0),
        "Readers": said["readers"],
        "CarriedReaders": said["carried"],
        "Limited": float(document["state"] == "limited"),
        "DriverFailing": float(document["driver"]["state"] == "failing"),
    }
    dimensions = [
        {"Name": "Region", "Value": document["region"]},
        {"Name": "Scaler", "Value": document["scaler"]},
    ]
    return [
        {"MetricName": name, "Dimensions": dimensions, "Value": float(value), "Unit": "Count"}
        for name, value in values.items()
    ]
