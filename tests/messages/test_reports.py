"""Reports of a process: each decodes to the value that was encoded, and garbage is refused."""

from __future__ import annotations

import dataclasses
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from newsfabric.amqp.message import Message, Properties
from newsfabric.messages.reports import (
    KINDS,
    MAX_FIGURES,
    MAX_SHOVELS,
    REPORT,
    Busy,
    NodeSeen,
    Report,
    ShovelSeen,
    decode_report,
    encode_report,
    report_key,
)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
counts = st.integers(0, 2**63 - 1)
rates = st.floats(0, 1e12)
reports = st.builds(
    Report,
    region=texts,
    name=texts,
    kind=st.sampled_from(KINDS),
    version=texts,
    started_ms=counts,
    sent_ms=counts,
    state=texts,
    waiting_for=st.lists(texts, max_size=4).map(tuple),
    engine=texts,
    figures=st.dictionaries(texts, st.floats(-1e12, 1e12), max_size=4),
    shovels=st.lists(
        st.builds(
            ShovelSeen,
            name=texts,
            runs_on=texts,
            source=texts,
            state=texts,
            canary_age_ms=st.none() | counts,
            messages_per_second=st.none() | rates,
            restarts=counts,
        ),
        max_size=3,
    ).map(tuple),
    nodes=st.lists(
        st.builds(NodeSeen, cluster=texts, node=texts, running=st.booleans(), alarm=texts),
        max_size=3,
    ).map(tuple),
    topics=st.lists(st.builds(Busy, name=texts, messages_per_second=rates), max_size=3).map(tuple),
    publishers=st.just(()),
)

REPORTED = Report(
    region="oregon",
    name="oregon-router-1",
    kind="router",
    version="0.1.0",
    started_ms=1,
    sent_ms=2,
    state="ready",
    shovels=(
        ShovelSeen(
            name="publish.1",
            runs_on="oregon/core",
            source="oregon/client",
            state="running",
            canary_age_ms=None,
            messages_per_second=None,
            restarts=0,
        ),
    ),
    nodes=(NodeSeen(cluster="oregon/core", node="oregon-core-1", running=True, alarm="", unfit=1),),
    topics=(Busy(name="news", messages_per_second=1.0),),
)


def encoded(fields: Any, kind: str = REPORT) -> Message:
    return Message("k", orjson.dumps(fields), Properties(type=kind))


@given(reports)
def test_a_report_comes_back_as_it_was_sent(report: Report) -> None:
    assert decode_report(encode_report(report)) == report


def test_it_goes_by_its_region_and_name_in_its_senders_name() -> None:
    message = encode_report(REPORTED, user_id="router.oregon")
    assert message.topic == report_key("oregon", "oregon-router-1")
    assert message.topic == "_fabric.report.oregon.oregon-router-1"
    assert message.properties.user_id == "router.oregon"


FIELDS = dataclasses.asdict(REPORTED)


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "king"},
        {"name": 1},
        {"name": "x" * 256},
        {"sent_ms": -1},
        {"sent_ms": True},
        {"figures": []},
        {"figures": {"readers": "many"}},
        {"figures": {"readers": None}},
        {"figures": {str(n): 1 for n in range(MAX_FIGURES + 1)}},
        {"figures": {"x" * 256: 1}},
        {"figures": {"readers": 1e300}},
        {"waiting_for": ["x"] * 17},
        {"waiting_for": [1]},
        {"shovels": FIELDS["shovels"] * (MAX_SHOVELS + 1)},
        {"shovels": [{}]},
        {"shovels": [FIELDS["shovels"][0] | {"messages_per_second": -1}]},
        {"shovels": None},
        {"nodes": [FIELDS["nodes"][0] | {"running": 1}]},
        {"topics": [1]},
        {"topics": [{"name": "news", "messages_per_second": float("nan")}]},
    ],
)
def test_what_is_no_report_is_refused(wrong: dict[str, Any]) -> None:
    assert decode_report(encoded(FIELDS)) == REPORTED
    with pytest.raises(ValueError, match=r".+"):
        decode_report(encoded(FIELDS | wrong))


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats() | texts,
        lambda inner: (
            st.lists(inner) | st.dictionaries(texts | st.sampled_from(list(FIELDS)), inner)
        ),
    )
)
def test_no_json_makes_it_raise_anything_else(fields: Any) -> None:
    try:
        decode_report(encoded(fields))
    except ValueError:
        return


def test_another_type_and_a_body_too_long_are_refused() -> None:
    with pytest.raises(ValueError, match="not a report: type"):
        decode_report(encoded(FIELDS, "load"))
    with pytest.raises(ValueError, match="bytes"):
        decode_report(encoded(FIELDS | {"filler": "x" * 70_000}))
    with pytest.raises(ValueError, match="not a report"):
        decode_report(Message("k", b"{", Properties(type=REPORT)))
