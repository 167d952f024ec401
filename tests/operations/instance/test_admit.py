"""A box that can't get its user doesn't affect the others."""

from __future__ import annotations

import pytest

from operations.instance.admit import Admission, AdmittedGroup
from operations.instance.cloud import CloudError

ONE, TWO, THREE = "i-00000001", "i-00000002", "i-00000003"
PLACE = AdmittedGroup(region="oregon", group="boxes", prefix="box/", machines="arn:")
FAILURE = "secret box/i-00000001: InvalidRequestException: it was scheduled for deletion"


class FakeCloud:
    """A group of boxes and their secrets, one of which is bad."""

    def __init__(self) -> None:
        self.boxes = {ONE, TWO}
        self.bad = {ONE}
        self.forgotten: list[str] = []

    def instances(self, group: str) -> set[str]:
        return set(self.boxes)

    def box_password(self, prefix: str, box: str, machine: str, key: str | None) -> str:
        self._try(box)
        return "a-password-of-its-own"

    def forget_box(self, prefix: str, box: str) -> None:
        self._try(box)
        self.forgotten.append(box)

    def _try(self, box: str) -> None:
        if box in self.bad:
            raise CloudError(FAILURE, code="InvalidRequestException")


class CoreUsers:
    """The core's users."""

    def __init__(self) -> None:
        self.users: set[str] = set()

    async def user_names(self) -> set[str]:
        return set(self.users)

    async def import_definitions(self, document: dict[str, object]) -> None:
        users = document["users"]
        assert isinstance(users, list)
        self.users |= {user["name"] for user in users}

    async def delete_user(self, name: str) -> None:
        self.users.discard(name)


async def test_a_bad_secret_keeps_no_other_box_from_its_user_and_is_mended_later() -> None:
    cloud, core = FakeCloud(), CoreUsers()
    admission = Admission(PLACE, cloud, core)
    await admission.step(0)
    assert core.users == {f"box.{TWO}"}
    cloud.bad.clear()
    await admission.step(5)
    assert core.users == {f"box.{ONE}", f"box.{TWO}"}


async def test_a_bad_secret_keeps_no_other_box_from_being_forgotten() -> None:
    cloud, core = FakeCloud(), CoreUsers()
    cloud.boxes, cloud.bad = {ONE, TWO, THREE}, set()
    admission = Admission(PLACE, cloud, core)
    await admission.step(0)
    cloud.boxes, cloud.bad = {THREE}, {ONE}
    await admission.step(5)
    await admission.step(605)
    assert (cloud.forgotten, core.users) == ([TWO], {f"box.{ONE}", f"box.{THREE}"})


async def test_it_is_logged_for_each_box_and_seldom(caplog: pytest.LogCaptureFixture) -> None:
    cloud = FakeCloud()
    cloud.bad = {ONE, TWO}
    admission = Admission(PLACE, cloud, CoreUsers())
    for now in (0, 5, 10):
        await admission.step(now)
    logged = [(r.levelname, r.getMessage()) for r in caplog.records]
    assert logged == [("WARNING", f"box {box}: {FAILURE}") for box in (ONE, TWO)]
    await admission.step(65)
    assert len(caplog.records) == 4
