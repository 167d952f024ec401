"""A scaler's figures as CloudWatch metrics: for alarms, and for other parties' policies.

The decision that a reader would question: each scaler sends its own numbers, with its name as a
dimension. With one shared metric a disagreement of two scalers would be hidden.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

from newsfabric.line_limits import RepeatedFailures
from wholesale.scaler.drivers import DriverError

if TYPE_CHECKING:
    from wholesale.scaler.drivers.aws import AwsClient

logger = logging.getLogger(__name__)

# CloudWatch's own resolution.
EVERY: Final = 60.0
TIMEOUT: Final = 20.0


class MetricsSink(Protocol):
    """Reports a scaler's figures to a monitoring system, again and again."""

    async def run(self, document: Callable[[], dict[str, Any]]) -> None:
        """Report ``document()`` until cancelled. Failed reports are lost."""


class CloudWatch:
    """Puts metrics into ``namespace``. The caller owns ``cloud``."""

    def __init__(self, namespace: str, cloud: AwsClient, *, every: float = EVERY) -> None:
        self._namespace = namespace
        self._cloud = cloud
        self._every = every
        self._failures = RepeatedFailures()

    async def run(self, document: Callable[[], dict[str, Any]]) -> None:
        """Report as :meth:`MetricsSink.run`, every ``every`` seconds."""
        while True:
            await self.put_metrics(document())
            await asyncio.sleep(self._every)

    async def put_metrics(self, document: dict[str, Any]) -> bool:
        """Put the metrics of ``document``; return whether CloudWatch accepted them."""
        data = metric_data(document)
        if not data:
            return False
        try:
            async with asyncio.timeout(TIMEOUT):
                await self._cloud.run_call(
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
    """Return the metrics in a ``/scale`` document; none while the scaler is deaf. Pure."""
    if document["wanted"] is None:
        return []
    values = {line["name"]: line["value"] for line in document["sums"]}
    values = {
        "WantedBoxes": document["wanted"],
        "ServingBoxes": document["counts"].get("ready", 0),
        "FailedBoxes": document["counts"].get("failed", 0),
        "SilentBoxes": document["counts"].get("silent", 0),
        "Readers": values["readers"],
        "CarriedReaders": values["carried"],
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
