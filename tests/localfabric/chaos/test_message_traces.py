"""The choice of overdue messages that are traced while a world runs."""

from __future__ import annotations

from localfabric.chaos.message_traces import SHOWN_TRACES, untraced


def test_overdue_messages_are_traced_until_there_are_twenty_traces() -> None:
    overdue = list(range(25))
    assert untraced(overdue, range(10)) == list(range(10, 20))
    assert untraced(overdue, range(SHOWN_TRACES)) == []
    assert untraced([3], []) == [3]
