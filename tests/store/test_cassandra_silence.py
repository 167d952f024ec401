"""The time at which a read begins in another region, after its own didn't reply."""

from __future__ import annotations

from newsfabric.store._cassandra_presence import LONG_WAIT, SHORT_WAIT, Silence


def test_reads_begin_in_their_own_region() -> None:
    silence = Silence()
    assert silence.begins_here(LONG_WAIT, 0.0)
    assert silence.begins_here(SHORT_WAIT, 0.0)


def test_after_a_hasty_read_was_in_vain_the_next_hasty_ones_begin_elsewhere_for_a_moment() -> None:
    silence = Silence()
    silence.note_silence(SHORT_WAIT, 10.0)
    assert not silence.begins_here(SHORT_WAIT, 14.9)
    assert silence.begins_here(SHORT_WAIT, 15.0)
    # Silence of 1.5 s is no proof for reads that need the latest state.
    assert silence.begins_here(LONG_WAIT, 10.0)


def test_after_a_patient_read_was_in_vain_all_begin_elsewhere() -> None:
    silence = Silence()
    silence.note_silence(LONG_WAIT, 10.0)
    assert not silence.begins_here(SHORT_WAIT, 10.0)
    assert not silence.begins_here(LONG_WAIT, 39.9)
    assert silence.begins_here(LONG_WAIT, 40.0)


def test_a_silence_that_goes_on_is_reported_once() -> None:
    silence = Silence()
    assert silence.note_silence(LONG_WAIT, 10.0)
    assert not silence.note_silence(LONG_WAIT, 45.0)
    assert silence.note_silence(LONG_WAIT, 200.0)


def test_other_regions_that_were_silent_arent_asked_first_for_half_a_minute() -> None:
    silence = Silence()
    assert silence.answers_elsewhere(0.0)
    silence.note_silence_elsewhere(10.0)
    assert not silence.answers_elsewhere(39.9)
    assert silence.answers_elsewhere(40.0)


def test_repair_waits_so_shortly_that_another_region_answers_within_three_seconds() -> None:
    hole = 0.5
    assert hole + SHORT_WAIT.here + 1.0 <= 3.0
    assert SHORT_WAIT.here < LONG_WAIT.here
