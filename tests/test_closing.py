"""The table of close reasons agrees with itself and with RFC 6455."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from newsfabric import closing
from newsfabric.closing import CLOSE_REASONS, CloseReason, ErrorCode

each_reason = pytest.mark.parametrize("reason", CLOSE_REASONS, ids=lambda reason: reason.name)


def test_the_table_has_every_reason_of_the_module_once():
    defined = [value for value in vars(closing).values() if isinstance(value, CloseReason)]
    assert sorted(defined, key=lambda r: r.code) == sorted(CLOSE_REASONS, key=lambda r: r.code)


def test_names_and_codes_are_unique():
    assert len({reason.name for reason in CLOSE_REASONS}) == len(CLOSE_REASONS)
    assert len({reason.code for reason in CLOSE_REASONS}) == len(CLOSE_REASONS)


@each_reason
def test_the_range_of_a_code_tells_whether_to_reconnect(reason):
    ranges = {
        range(4000, 4100): (False, False),
        range(4100, 4200): (True, True),
        range(4200, 4300): (True, False),
    }
    for codes, (reconnect, waits) in ranges.items():
        if reason.code in codes:
            assert (reason.reconnect, reason.retry_after_ms > 0) == (reconnect, waits)
            return
    # RFC 6455 section 7.4.1: 1004, 1005, 1006 and 1015 never go on the wire.
    assert reason.code in set(range(1000, 1016)) - {1004, 1005, 1006, 1015}


def test_the_page_for_readers_lists_these_codes_and_what_they_ask_for():
    page = (Path(__file__).parents[1] / "docs" / "protocol.md").read_text(encoding="utf-8")
    section = page.split("## How a connection ends")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (\d.*) \| (.*) \| (.*) \|$", section, re.MULTILINE)
    listed = {
        int(code): (reconnect != "no", reconnect not in ("no", "at once"))
        for codes, why, advice in rows
        for reconnect in advice.split(";")[:1]
        for code in re.findall(r"\b\d{4}\b", why if "–" in codes else codes)
    }
    assert listed == {
        reason.code: (reason.reconnect, reason.retry_after_ms > 0) for reason in CLOSE_REASONS
    }


@each_reason
def test_who_must_not_reconnect_is_given_no_time_for_it(reason):
    assert reason.reconnect or reason.retry_after_ms == 0


@each_reason
def test_a_text_fits_a_close_frame(reason):
    # RFC 6455 section 5.5: 125 bytes, two of which are the code.
    assert 0 < len(reason.text.encode("utf-8")) <= 123


@each_reason
def test_a_name_is_fit_for_a_metrics_label(reason):
    assert reason.name.isidentifier()
    assert reason.name == reason.name.lower()


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        (closing.UNFINISHED, 1008),
        (closing.DRAIN, 1012),
        (closing.OVERLOAD, 1013),
        (closing.INVALID_TOKEN, 4001),
        (closing.INTERNAL, 4100),
        (closing.SLOW_READER, 4101),
        (closing.TOO_MANY_REQUESTS, 4102),
        (closing.ADDRESS_FULL, 4103),
        (closing.REBALANCE, 4200),
        (closing.TOKEN_EXPIRED, 4202),
        (closing.NO_PONG, 4203),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_codes_that_readers_know_stay_what_they_are(reason, code):
    assert reason.code == code


def test_error_codes_that_readers_know_stay_what_they_are():
    assert {code.name: int(code) for code in ErrorCode} == {
        "INTERNAL": 100,
        "UNAUTHORIZED": 101,
        "UNKNOWN_TOPIC": 102,
        "PERMISSION_DENIED": 103,
        "ALREADY_SUBSCRIBED": 105,
        "LIMIT_EXCEEDED": 106,
        "BAD_REQUEST": 107,
        "TOKEN_EXPIRED": 109,
        "TOO_MANY_REQUESTS": 111,
        "UNRECOVERABLE_POSITION": 112,
    }
