"""Driver ``aws``: the desired capacity of an autoscaling group. Needs ``newsfabric[aws]``.

A box's name is its instance's id (``i-0abc…``). The group's own policies must be off, and its
instances protected from scale-in, so that AWS ends none by itself. Then the desired capacity is
raised here, and falls with each instance that is ended by name.

boto3 blocks in a thread of its own. Its time limits are below those of
:mod:`wholesale.scaler.acting`, so that a call that hangs ends before the next one.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import datetime
import functools
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

import boto3
import botocore.config
import botocore.exceptions

from wholesale.scaler.drivers import DriverError, DriverLimit, Instance, checked

_T = TypeVar("_T")

_CONFIG: Final = botocore.config.Config(
    connect_timeout=3, read_timeout=6, retries={"total_max_attempts": 2, "mode": "standard"}
)
# Instances that are leaving, and so don't count.
_GOING: Final = ("Terminating", "Terminated", "Detaching", "Detached")


class AwsClient:
    """A client of one AWS service, with one thread of its own."""

    def __init__(self, service: str, *, region: str | None, endpoint: str | None) -> None:
        self._pool = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix=service)
        try:
            self._client: Any = boto3.client(
                service, region_name=region, endpoint_url=endpoint, config=_CONFIG
            )
        except (botocore.exceptions.BotoCoreError, ValueError) as exc:
            raise DriverError(f"{service}: {exc}") from exc

    async def run_call(self, call: Callable[[Any], _T]) -> _T:
        """Return the result of ``call`` with the client; raise DriverError for an error of AWS."""
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._pool, functools.partial(call, self._client))
        except botocore.exceptions.ClientError as exc:
            error = exc.response.get("Error", {})
            raise DriverError(f"{error.get('Code')}: {error.get('Message')}") from exc
        except botocore.exceptions.BotoCoreError as exc:
            raise DriverError(f"{type(exc).__name__}: {exc}") from exc

    def close(self) -> None:
        """Close without waiting: calls that hang end by their own time limits."""
        self._pool.shutdown(wait=False, cancel_futures=True)


class AwsDriver:
    """A driver of the autoscaling group ``group``. ``endpoint`` is for tests."""

    def __init__(
        self, group: str, *, region: str | None = None, endpoint: str | None = None
    ) -> None:
        self._group = group
        self._groups = AwsClient("autoscaling", region=region, endpoint=endpoint)
        self._machines = AwsClient("ec2", region=region, endpoint=endpoint)
        # Instances' launch times, which the group doesn't contain.
        self._launched: dict[str, datetime.datetime] = {}

    async def boxes(self) -> tuple[Instance, ...]:
        """Return boxes as :meth:`wholesale.scaler.drivers.Driver.boxes`.

        Without those that terminate, and without those whose launch time isn't known yet.
        """
        group = await self._describe()
        there = {
            each["InstanceId"]: each["AvailabilityZone"]
            for each in group["Instances"]
            if not each["LifecycleState"].startswith(_GOING)
        }
        await self._learn_launches(there.keys())
        now = datetime.datetime.now(datetime.UTC)
        return tuple(
            checked(name, max(0.0, (now - self._launched[name]).total_seconds()), zone)
            for name, zone in there.items()
            if name in self._launched
        )

    async def want(self, count: int) -> None:
        """Order boxes as :meth:`wholesale.scaler.drivers.Driver.want`; DriverLimit over MaxSize."""
        group = await self._describe()
        most = int(group["MaxSize"])
        if int(group["DesiredCapacity"]) < min(count, most):
            await self._groups.run_call(
                lambda client: client.set_desired_capacity(
                    AutoScalingGroupName=self._group,
                    DesiredCapacity=min(count, most),
                    HonorCooldown=False,
                )
            )
        if count > most:
            raise DriverLimit(f"{self._group} may have {most} instances, {count} are wanted")

    async def end(self, names: Iterable[str]) -> None:
        """End boxes as :meth:`wholesale.scaler.drivers.Driver.end`; DriverLimit at MinSize."""
        group = await self._describe()
        there = {
            each["InstanceId"]
            for each in group["Instances"]
            if not each["LifecycleState"].startswith(_GOING)
        }
        least, desired = int(group["MinSize"]), int(group["DesiredCapacity"])
        for name in names:
            if name not in there:
                continue
            if desired <= least:
                raise DriverLimit(f"{self._group} must have {least} instances: {name} stays")
            await self._groups.run_call(functools.partial(_end, name=name))
            desired -= 1

    async def close(self) -> None:
        """Close as :meth:`wholesale.scaler.drivers.Driver.close`."""
        self._groups.close()
        self._machines.close()

    async def _describe(self) -> dict[str, Any]:
        answer = await self._groups.run_call(
            lambda client: client.describe_auto_scaling_groups(AutoScalingGroupNames=[self._group])
        )
        groups: list[dict[str, Any]] = answer["AutoScalingGroups"]
        if not groups:
            raise DriverError(f"no autoscaling group {self._group!r} here")
        return groups[0]

    async def _learn_launches(self, names: Iterable[str]) -> None:
        wanted = set(names)
        self._launched = {n: at for n, at in self._launched.items() if n in wanted}
        new = sorted(wanted - self._launched.keys())
        # One request may have as many.
        for n in range(0, len(new), 100):
            found = await self._machines.run_call(
                functools.partial(_launches, names=new[n : n + 100])
            )
            self._launched.update(found)


def _end(client: Any, *, name: str) -> None:
    client.terminate_instance_in_auto_scaling_group(
        InstanceId=name, ShouldDecrementDesiredCapacity=True
    )


def _launches(client: Any, *, names: list[str]) -> dict[str, datetime.datetime]:
    # By filter and not by id: with ids, one that AWS has forgotten would fail the whole request.
    filters = [{"Name": "instance-id", "Values": names}]
    return {
        each["InstanceId"]: each["LaunchTime"]
        for reservation in client.describe_instances(Filters=filters)["Reservations"]
        for each in reservation["Instances"]
    }
