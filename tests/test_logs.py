"""The log of a service: bounded, and each record a line."""

from __future__ import annotations

import io
import logging

from hypothesis import given
from hypothesis import strategies as st

from newsfabric.logs import BURST, FORMAT, MAX_LINE, MAX_TRACEBACK, PAUSE, Bounded, Lines


def record(text: str, *args: object, at: float = 0.0, line: int = 1) -> logging.LogRecord:
    made = logging.LogRecord("gateway", logging.WARNING, "gateway/x.py", line, text, args, None)
    made.created = at
    return made


def test_a_place_says_so_many_lines_and_then_one_now_and_then() -> None:
    bounded = Bounded()
    said = [bounded.filter(record("no", at=n / 1000)) for n in range(BURST + 900)]
    assert said == [True] * BURST + [False] * 900
    late = record("%s", "once more", at=PAUSE + 1)
    assert bounded.filter(late)
    line = Lines(FORMAT).format(late)
    assert line.endswith("WARNING gateway: once more (and 900 more lines like this one)")
    assert not bounded.filter(record("no", at=PAUSE + 1))


def test_places_dont_share_what_they_may_say() -> None:
    bounded = Bounded()
    for _ in range(2 * BURST):
        bounded.filter(record("a flood", line=1))
    assert bounded.filter(record("something else", line=2))


def test_after_a_pause_a_place_may_say_as_much_as_at_first() -> None:
    bounded = Bounded()
    for n in (0.0, BURST * PAUSE):
        said = [bounded.filter(record("no", at=n)) for _ in range(BURST + 1)]
        assert said == [True] * BURST + [False]


@given(st.text() | st.text("\r\n\x1b\x85\u2028ab"))
def test_whatever_a_stranger_wrote_is_one_line_and_no_longer_than_a_line_may_be(text: str) -> None:
    line = Lines(FORMAT).format(record("a stranger says %s", text))
    assert line.splitlines() == [line]
    assert len(line) <= MAX_LINE + 1
    assert "a stranger says" in line


def test_a_traceback_stands_behind_its_line_and_only_its_end_if_it_is_long() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(Lines(FORMAT))
    logger = logging.Logger("gateway")
    logger.addHandler(handler)
    try:
        raise ValueError("x" * 3 * MAX_TRACEBACK)
    except ValueError:
        logger.exception("it failed")
    line, _, rest = stream.getvalue().partition("\n")
    assert line.endswith("ERROR gateway: it failed")
    assert rest == "…" + "x" * MAX_TRACEBACK + "\n"
