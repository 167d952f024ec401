"""What was read is of use for a minute, within bounds, together with what it relies on."""

from __future__ import annotations

import dataclasses
from typing import Any

from envelopes import START_MS, envelope

from gateway.forgotten import Forgotten
from gateway.memory import TopicMemory
from gateway.publication import Publication
from gateway.windows import Place, Window, Windows
from newsfabric.topics import TopicPolicy

NOW = START_MS / 1000
POLICY = TopicPolicy(pattern="news.*", keep=2)
DUBLIN, OREGON, TOKYO = (Place("news.a", region) for region in ("dublin", "oregon", "tokyo"))


def memory() -> TopicMemory:
    return TopicMemory(POLICY, 10, Forgotten(dict))


def message(number: int, **fields: Any) -> Publication:
    return Publication(envelope(number, **fields), POLICY, None)


def window(place: Place, memory: TopicMemory, *messages: Publication) -> Window:
    """One that was read now, of all there is."""
    return Window(
        place=place,
        messages={one.envelope.identity: one for one in messages},
        asked_ms=0,
        reach_ms=0,
        memory=memory,
        arrived=memory.arrived,
        copies=memory.new_copies,
        read_at=NOW,
        spoilt=False,
    )


def regions(windows: Windows, memory: TopicMemory, now: float = NOW) -> set[str]:
    return set(windows.fitting("news.a", memory, now))


def test_a_window_fits_for_a_minute_with_the_memory_that_it_was_read_for() -> None:
    windows, its = Windows(1 << 20), memory()
    windows.keep(window(DUBLIN, its))
    windows.keep(window(OREGON._replace(topic="news.b"), its))
    assert regions(windows, its, NOW + 59.9) == {"dublin"}
    assert regions(windows, its, NOW + 60.0) == set()
    assert regions(windows, memory()) == set()


def test_a_window_fits_until_memory_has_lost_what_came_since() -> None:
    windows, its = Windows(1 << 20), memory()
    its.add(message(1))
    windows.keep(window(DUBLIN, its))
    for number in (2, 3):
        its.add(message(number))
    assert regions(windows, its) == {"dublin"}
    its.add(message(4))
    assert regions(windows, its) == set()


def test_windows_are_bounded_in_bytes_and_the_newest_stays() -> None:
    large = message(1, body=b'"' + b"x" * 10_000 + b'"')
    windows, its = Windows(2 * large.weight), memory()
    for place in (DUBLIN, OREGON, TOKYO):
        windows.keep(window(place, its, large))
    assert regions(windows, its) == {"oregon", "tokyo"}
    windows.keep(window(DUBLIN, its, large, message(2, body=large.envelope.body), message(3)))
    assert regions(windows, its) == {"dublin"}


def test_only_the_window_that_is_meant_is_let_go() -> None:
    windows, its = Windows(1 << 20), memory()
    old, new = window(DUBLIN, its), window(DUBLIN, its)
    windows.keep(old)
    windows.keep(new)
    windows.drop(DUBLIN, old.number)
    assert windows.fitting("news.a", its, NOW) == {"dublin": new}
    windows.drop(DUBLIN, new.number)
    windows.drop(DUBLIN, new.number)
    assert regions(windows, its) == set()


def test_a_copy_that_came_later_is_noted_where_its_message_was_read() -> None:
    windows, its, one = Windows(1 << 20), memory(), message(1)
    windows.keep(window(DUBLIN, its, one))
    its.note_copy(envelope(1, origin="tokyo"))
    assert regions(windows, its) == {"dublin"}
    assert [copy.log.region for copy in one.copies] == ["oregon", "tokyo"]


def test_a_window_that_lacks_a_message_fits_with_another_one_that_has_it() -> None:
    windows, its = Windows(1 << 20), memory()
    windows.keep(window(DUBLIN, its, message(1)))
    windows.keep(window(TOKYO, its))
    windows.keep(window(OREGON, its))
    its.note_copy(envelope(1))
    assert regions(windows, its) == {"dublin", "oregon", "tokyo"}
    # Oregon's store has a copy now that it hadn't then.
    windows.keep(window(DUBLIN, its))
    assert regions(windows, its) == {"dublin", "tokyo"}


def test_a_window_doesnt_fit_any_more_when_what_it_relies_on_has_become_old() -> None:
    windows, its = Windows(1 << 20), memory()
    older = dataclasses.replace(window(DUBLIN, its, message(1)), read_at=NOW - 30)
    windows.keep(older)
    windows.keep(window(OREGON, its))
    its.note_copy(envelope(1))
    assert regions(windows, its, NOW + 20) == {"dublin", "oregon"}
    assert regions(windows, its, NOW + 30) == set()


def test_a_window_that_lacks_a_message_which_no_other_one_has_doesnt_fit() -> None:
    windows, its = Windows(1 << 20), memory()
    windows.keep(window(DUBLIN, its))
    windows.keep(window(OREGON, its))
    its.note_copy(envelope(1))
    assert regions(windows, its) == {"dublin"}
    assert regions(windows, its) == {"dublin"}
