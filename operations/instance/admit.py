"""``admit``: gives each box of the group its user on the core, and its password by Secrets Manager.

Runs beside core nodes, two of them or more; none leads, and all do the same. Only boxes listed by
the group get a user. A password is known to the core (as a hash), to Secrets Manager, and to that
one machine (docs/design/0024-users-and-rights.md).
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from collections.abc import Awaitable
from typing import Final, Protocol

from newsfabric.errors import ManagementError
from newsfabric.line_limits import RepeatedFailures
from newsfabric.topology.rights import user_definitions
from newsfabric.topology.roles import core_box, user_name
from operations.instance.admitting import Admissions
from operations.instance.cloud import CloudError

logger = logging.getLogger(__name__)

EVERY_SECONDS: Final = 5.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AdmittedGroup:
    """The boxes that are admitted: of ``group``, in the fabric's ``region``.

    ``prefix`` begins their secrets' names, ``machines`` their ARNs, ``key`` encrypts (or None).
    """

    region: str
    group: str
    prefix: str
    machines: str
    key: str | None = None


class Passwords(Protocol):
    """The calls to AWS that ``admit`` makes; each blocks."""

    def instances(self, group: str) -> set[str]:
        """Return the ids of the autoscaling group's instances."""
        ...

    def box_password(self, prefix: str, box: str, machine: str, key: str | None) -> str:
        """Return the password of ``box``, which is made if there is none."""
        ...

    def forget_box(self, prefix: str, box: str) -> None:
        """Delete the password of ``box``."""
        ...


class Users(Protocol):
    """The core's users (:class:`newsfabric.brokers.management.Management`)."""

    async def user_names(self) -> set[str]:
        """Return the names of all users."""
        ...

    async def import_definitions(self, document: dict[str, object]) -> None:
        """Add or replace the users in ``document`` (definitions.json)."""
        ...

    async def delete_user(self, name: str) -> None:
        """Delete the user; its connections are closed."""
        ...


class Admission:
    """The admission of boxes, step by step."""

    def __init__(self, place: AdmittedGroup, cloud: Passwords, users: Users) -> None:
        self._place, self._cloud, self._users = place, cloud, users
        self._admissions = Admissions()
        # The boxes for which the last step failed.
        self._failures: dict[str, RepeatedFailures] = {}

    async def step(self, now: float) -> None:
        """Do one step at ``now``; CloudError or ManagementError if the lists can't be read.

        An error of one box is logged seldom and retried by the next step, and doesn't affect other
        boxes.
        """
        place = self._place
        listed = await asyncio.to_thread(self._cloud.instances, place.group)
        begin = user_name("box", "")
        names = await self._users.user_names()
        known = {name.removeprefix(begin) for name in names if name.startswith(begin)}
        change = self._admissions.step(now, listed, known)
        failed = {box for box in change.admit if not await self._try(box, self._admit(box), now)}
        failed |= {box for box in change.forget if not await self._try(box, self._forget(box), now)}
        self._failures = {box: self._failures[box] for box in failed}

    async def _try(self, box: str, change: Awaitable[None], now: float) -> bool:
        try:
            await change
        except (CloudError, ManagementError) as exc:
            if self._failures.setdefault(box, RepeatedFailures()).should_log(str(exc), now):
                logger.warning("box %s: %s", box, exc)
            return False
        return True

    async def _admit(self, box: str) -> None:
        place = self._place
        password = await asyncio.to_thread(
            self._cloud.box_password, place.prefix, box, place.machines + box, place.key
        )
        user = core_box(place.region, box)
        await self._users.import_definitions({**user_definitions([user], {user.name: password})})
        self._admissions.admitted(box)
        logger.info("box %s has a user", box)

    async def _forget(self, box: str) -> None:
        await asyncio.to_thread(self._cloud.forget_box, self._place.prefix, box)
        await self._users.delete_user(user_name("box", box))
        self._admissions.forgotten(box)
        logger.info("box %s has gone, and its user", box)


async def admit(stop: asyncio.Event, admission: Admission) -> None:
    """Do a step every few seconds until ``stop``; an error is logged seldom and retried."""
    failures = RepeatedFailures()
    while not stop.is_set():
        try:
            await admission.step(time.monotonic())
            failures.ended()
        except (CloudError, ManagementError) as exc:
            if failures.should_log(str(exc), time.monotonic()):
                logger.warning("%s", exc)
        try:
            await asyncio.wait_for(stop.wait(), EVERY_SECONDS)
        except TimeoutError:
            continue
