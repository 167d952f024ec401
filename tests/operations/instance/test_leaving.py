"""A box that AWS terminates: the decisions about its leaving, and the actions."""

from __future__ import annotations

import pytest

from newsfabric.errors import ConfigError
from operations.instance.cloud import CloudError
from operations.instance.leave import EndWatch
from operations.instance.leaving import TERMINATED, Leaving, LeavingStep
from operations.instance.metadata import MetadataError

PLACE = ("newsfabric-oregon-retail", "drain", "i-0123456789abcdef0")


@pytest.mark.parametrize("state", [None, "InService", "Standby", ""])
def test_a_box_that_is_not_to_end_stays(state: str | None) -> None:
    leaving = Leaving(limit=200)
    assert [leaving.step(now, state, drained=False) for now in (0.0, 1e6)] == [LeavingStep.STAY] * 2


def test_it_drains_beats_and_completes_once_drained() -> None:
    leaving = Leaving(limit=200, beat_every=30)
    steps = [
        leaving.step(now, TERMINATED, drained=drained)
        for now, drained in (
            (0.0, False),
            (29.0, False),
            (30.0, False),
            (31.0, False),
            (35.0, True),
        )
    ]
    assert steps == [
        LeavingStep.DRAIN,
        LeavingStep.WAIT,
        LeavingStep.BEAT,
        LeavingStep.WAIT,
        LeavingStep.COMPLETE,
    ]
    leaving.note_completed()
    assert leaving.step(36.0, TERMINATED, drained=True) is LeavingStep.GONE


def test_silence_of_the_metadata_does_not_end_a_drain() -> None:
    leaving = Leaving(limit=200)
    assert leaving.step(0.0, TERMINATED, drained=False) is LeavingStep.DRAIN
    assert leaving.step(5.0, None, drained=False) is LeavingStep.WAIT
    assert leaving.step(6.0, None, drained=True) is LeavingStep.COMPLETE


def test_a_drain_that_hangs_has_an_end() -> None:
    leaving = Leaving(limit=200)
    leaving.step(0.0, TERMINATED, drained=False)
    assert leaving.step(199.0, TERMINATED, drained=False) is LeavingStep.BEAT
    assert leaving.step(200.0, TERMINATED, drained=False) is LeavingStep.COMPLETE


def test_it_says_again_that_it_may_go_until_that_is_heard() -> None:
    leaving = Leaving(limit=200)
    leaving.step(0.0, TERMINATED, drained=False)
    assert leaving.step(1.0, TERMINATED, drained=True) is LeavingStep.COMPLETE
    assert leaving.step(6.0, TERMINATED, drained=True) is LeavingStep.COMPLETE


class LeavingStage:
    """Metadata, AWS and a drain that record all requests."""

    def __init__(self) -> None:
        self.state: str | None = "InService"
        self.drained = False
        self.done: list[str] = []
        self.deaf = False
        self.mute = False
        self.renewed = 0
        self.watch = EndWatch(
            Leaving(limit=200),
            place=PLACE,
            metadata=self,
            cloud=self,
            drain=self,
            renew=self.renew,
        )

    def target_state(self) -> str | None:
        if self.mute:
            raise MetadataError("metadata: no answer")
        return self.state

    def beat(self, group: str, hook: str, box: str) -> None:
        self._heard("beat", group, hook, box)

    def complete(self, group: str, hook: str, box: str) -> None:
        self._heard("complete", group, hook, box)

    def _heard(self, what: str, *place: str) -> None:
        assert place == PLACE
        if self.deaf:
            raise CloudError("lifecycle: no answer")
        self.done.append(what)

    def begin(self) -> None:
        self.done.append("drain")

    def renew(self) -> None:
        self.renewed += 1
        if self.deaf:
            raise ConfigError("systemctl: no")

    def over(self) -> bool:
        return self.drained


def test_a_box_that_AWS_ends_is_drained_and_then_let_go() -> None:
    fabric = LeavingStage()
    assert not fabric.watch.check(0.0)
    fabric.state = TERMINATED
    assert not fabric.watch.check(5.0)
    assert not fabric.watch.check(40.0)
    fabric.drained = True
    assert not fabric.watch.check(45.0)
    assert fabric.watch.check(50.0)
    assert fabric.done == ["drain", "beat", "complete"]


def test_a_box_that_stays_has_its_secrets_read_again_every_five_minutes() -> None:
    fabric = LeavingStage()
    for now in (0.0, 5.0, 299.0, 300.0, 305.0):
        fabric.watch.check(now)
    assert fabric.renewed == 2
    fabric.deaf = True
    assert not fabric.watch.check(600.0)
    assert not fabric.watch.check(605.0)
    assert fabric.renewed == 3


def test_a_box_that_drains_is_left_as_it_is() -> None:
    fabric = LeavingStage()
    fabric.state = TERMINATED
    for now in (0.0, 40.0, 300.0):
        fabric.watch.check(now)
    assert (fabric.renewed, fabric.done[0]) == (0, "drain")


def test_metadata_that_are_mute_drain_no_box(caplog: pytest.LogCaptureFixture) -> None:
    fabric = LeavingStage()
    fabric.mute = True
    assert not any(fabric.watch.check(now) for now in (0.0, 5.0, 10.0))
    assert fabric.done == []
    assert [record.message for record in caplog.records] == ["metadata: no answer"]


def test_without_AWS_it_drains_all_the_same_and_says_so_when_it_can(
    caplog: pytest.LogCaptureFixture,
) -> None:
    fabric = LeavingStage()
    fabric.state, fabric.deaf = TERMINATED, True
    fabric.watch.check(0.0)
    fabric.drained = True
    assert not fabric.watch.check(5.0)
    assert not fabric.watch.check(10.0)
    assert fabric.done == ["drain"]
    fabric.deaf = False
    assert not fabric.watch.check(15.0)
    assert fabric.watch.check(20.0)
    assert fabric.done == ["drain", "complete"]
    assert sum("no answer" in record.message for record in caplog.records) == 1
