"""When a read that waited in vain for its own region begins in another one."""

from __future__ import annotations

from newsfabric.store._cassandra_presence import HASTY, PATIENT, Silence


def test_reads_begin_in_their_own_region() -> None:
    silence = Silence()
    assert silence.over(PATIENT, 0.0)
    assert silence.over(HASTY, 0.0)


def test_after_a_hasty_read_was_in_vain_the_next_hasty_ones_begin_elsewhere_for_a_moment() -> None:
    silence = Silence()
    silence.met(HASTY, 10.0)
    assert not silence.over(HASTY, 14.9)
    assert silence.over(HASTY, 15.0)
    # A second and a half is no proof for those who must have the last word.
    assert silence.over(PATIENT, 10.0)


def test_after_a_patient_read_was_in_vain_all_begin_elsewhere() -> None:
    silence = Silence()
    silence.met(PATIENT, 10.0)
    assert not silence.over(HASTY, 10.0)
    assert not silence.over(PATIENT, 39.9)
    assert silence.over(PATIENT, 40.0)


def test_a_silence_that_goes_on_is_told_once() -> None:
    silence = Silence()
    assert silence.met(PATIENT, 10.0)
    assert not silence.met(PATIENT, 45.0)
    assert silence.met(PATIENT, 200.0)


def test_other_regions_that_were_silent_arent_asked_first_for_half_a_minute() -> None:
    silence = Silence()
    assert silence.answers_elsewhere(0.0)
    silence.met_elsewhere(10.0)
    assert not silence.answers_elsewhere(39.9)
    assert silence.answers_elsewhere(40.0)


def test_repair_waits_so_shortly_that_another_region_answers_within_three_seconds() -> None:
    hole = 0.5
    assert hole + HASTY.here + 1.0 <= 3.0
    assert HASTY.here < PATIENT.here
