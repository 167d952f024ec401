"""The boxes that get a user on the core."""

from __future__ import annotations

from operations.instance.admitting import Admissions, Change

ONE, TWO = "i-00000001", "i-00000002"
NOTHING = Change((), ())


def test_a_box_is_admitted_when_the_group_lists_it_and_once() -> None:
    admissions = Admissions()
    assert admissions.step(0, {ONE}, set()) == Change((ONE,), ())
    admissions.admitted(ONE)
    assert admissions.step(5, {ONE}, {ONE}) == NOTHING


def test_a_box_whose_user_went_with_its_broker_is_admitted_again() -> None:
    admissions = Admissions()
    admissions.admitted(ONE)
    assert admissions.step(5, {ONE}, {ONE}) == NOTHING
    assert admissions.step(10, {ONE}, set()) == Change((ONE,), ())


def test_what_failed_is_tried_again() -> None:
    admissions = Admissions()
    admissions.step(0, {ONE}, set())
    assert admissions.step(5, {ONE}, set()) == Change((ONE,), ())


def test_a_box_is_forgotten_only_when_it_was_gone_all_the_time() -> None:
    admissions = Admissions(grace=600)
    for box in (ONE, TWO):
        admissions.admitted(box)
    assert admissions.step(0, {ONE}, {ONE, TWO}) == NOTHING
    assert admissions.step(599, {ONE}, {ONE, TWO}) == NOTHING
    assert admissions.step(600, {ONE}, {ONE, TWO}) == Change((), (TWO,))
    admissions.forgotten(TWO)
    assert admissions.step(605, {ONE}, {ONE}) == NOTHING


def test_a_box_that_was_only_not_listed_for_a_while_stays() -> None:
    admissions = Admissions(grace=600)
    for box in (ONE, TWO):
        admissions.admitted(box)
    admissions.step(0, {ONE}, {ONE, TWO})
    admissions.step(300, {ONE, TWO}, {ONE, TWO})
    assert admissions.step(700, {ONE}, {ONE, TWO}) == NOTHING


def test_boxes_that_another_core_node_admitted_are_forgotten_too() -> None:
    admissions = Admissions(grace=600)
    admissions.admitted(ONE)
    admissions.step(0, {ONE}, {ONE, TWO})
    assert admissions.step(600, {ONE}, {ONE, TWO}) == Change((), (TWO,))


def test_a_group_that_lists_nobody_takes_nobody_away() -> None:
    admissions = Admissions(grace=600)
    admissions.step(0, set(), {ONE})
    assert admissions.step(6000, set(), {ONE}) == NOTHING


def test_boxes_of_ansible_are_none_of_its_business() -> None:
    admissions = Admissions(grace=0)
    admissions.admitted(ONE)
    assert admissions.step(0, {ONE, "oregon-retail-9"}, {ONE, "oregon-retail-1"}) == NOTHING
