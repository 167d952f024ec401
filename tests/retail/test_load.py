"""The load report of a box."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from newsfabric.messages.control import decode_load, encode_load
from retail.load import AWAY, GatewayReport, box_state, parse_gateway_report, parse_load, report

ANSWER: dict[str, Any] = {
    "connections": 41,
    "capacity": 1000,
    "deliveries_per_second": 12.5,
    "connects_per_second": 2,
    "ready": True,
    "draining": False,
    "sockjs_url": "http://127.0.0.1:1/sockjs",
    "websocket_url": "ws://127.0.0.1:1/websocket",
    "sse_url": "http://127.0.0.1:1/events",
}


def test_the_gateways_numbers_arrive_in_the_report() -> None:
    load = parse_load(ANSWER)
    state = box_state(load, fed=True, draining=False)
    found = report("oregon", "oregon-retail-1", load, state, sent_ms=7)
    assert decode_load(encode_load(found)) == found
    assert (found.state, found.connections, found.capacity) == ("ready", 41, 1000)
    assert found.websocket_url == "ws://127.0.0.1:1/websocket"


@pytest.mark.parametrize(
    ("ready", "fed", "may_drain", "draining", "state"),
    [
        (True, True, False, False, "ready"),
        (False, True, False, False, "starting"),
        (True, False, False, False, "starting"),
        (True, True, True, False, "draining"),
        # An operator drained the gateway directly.
        (False, True, False, True, "draining"),
    ],
)
def test_a_box_is_ready_only_while_its_gateway_is_and_news_arrive(
    ready: bool, fed: bool, may_drain: bool, draining: bool, state: str
) -> None:
    load = parse_load(ANSWER | {"ready": ready, "draining": draining})
    assert box_state(load, fed=fed, draining=may_drain) == state


def test_a_box_without_its_gateway_reports_that_it_starts() -> None:
    state = box_state(AWAY, fed=True, draining=False)
    found = report("oregon", "box", AWAY, state, sent_ms=7)
    assert (found.state, found.connections, found.capacity) == ("starting", 0, 0)
    assert decode_load(encode_load(found)) == found


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("connections", -1),
        ("connections", True),
        ("connections", 1.5),
        ("capacity", None),
        ("deliveries_per_second", float("nan")),
        ("deliveries_per_second", float("inf")),
        ("connects_per_second", -0.1),
        ("connects_per_second", "2"),
        ("sockjs_url", None),
        ("sse_url", 7),
    ],
)
def test_an_answer_with_a_wrong_field_isnt_believed(field: str, value: object) -> None:
    with pytest.raises(ValueError, match=field):
        parse_load(ANSWER | {field: value})


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(sorted(ANSWER)), inner),
    )
)
def test_nonsense_is_a_value_error_and_nothing_else(document: object) -> None:
    with pytest.raises(ValueError, match="gateway"):
        parse_load(document)


WORD: dict[str, Any] = {
    "engine": "native",
    "version": "1.0",
    "ready": False,
    "waiting_for": ["feed"],
    "figures": {"gateway_readers": 7, "gateway_deliveries": 1.5},
}


def test_what_operators_are_shown_of_a_gateway_is_read() -> None:
    assert parse_gateway_report(WORD) == GatewayReport(
        engine="native",
        version="1.0",
        waiting_for=("feed",),
        figures={"gateway_readers": 7, "gateway_deliveries": 1.5},
    )


@pytest.mark.parametrize(
    "broken",
    [
        [],
        None,
        {},
        WORD | {"engine": 1},
        WORD | {"waiting_for": "feed"},
        WORD | {"waiting_for": [1]},
        WORD | {"figures": []},
        WORD | {"figures": {"x": "1"}},
        WORD | {"figures": {"x": True}},
        WORD | {"figures": {f"f{n}": 1 for n in range(97)}},
    ],
)
def test_a_gateways_word_that_is_none_is_refused(broken: Any) -> None:
    with pytest.raises(ValueError, match="the gateway's"):
        parse_gateway_report(broken)
