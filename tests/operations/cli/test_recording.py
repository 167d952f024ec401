import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from newsfabric.errors import ConfigError
from newsfabric.messages.control import Receipt
from operations.cli.recording import (
    RecordedLine,
    ReplayCounts,
    message_of,
    parse_line,
    read_recording,
    schedule,
)

ROOT = Path(__file__).resolve().parents[3]


def line(**fields: object) -> bytes:
    return json.dumps({"at": 1.5, "topic": "news.x", "body": {"a": 1}, **fields}).encode()


def test_a_line_is_read() -> None:
    assert parse_line(line(key="k", version=2, message_id="m"), "f:1") == RecordedLine(
        at=1.5, topic="news.x", body=b'{"a":1}', key="k", version=2, message_id="m"
    )


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (b"{", "f:3: not JSON"),
        (b"[]", "f:3: not a JSON object"),
        (line(at="soon"), "f:3: at is missing or of a wrong kind"),
        (line(topic=None), "f:3: topic is missing or of a wrong kind"),
        (line(version=True), "f:3: version is missing or of a wrong kind"),
        (line(colour="red"), "f:3: unknown field 'colour'"),
        (b'{"at": 1, "topic": "a"}', "f:3: body is missing"),
    ],
)
def test_a_bad_line_is_named(text: bytes, error: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_line(text, "f:3")
    assert str(caught.value).startswith(error)


def test_a_recording_is_read_in_order_of_time_and_blank_lines_are_none(tmp_path: Path) -> None:
    file = tmp_path / "day.jsonl"
    file.write_bytes(line(at=2) + b"\n\n" + line(at=1) + b"\n")
    assert [each.at for each in read_recording(file)] == [1.0, 2.0]


def test_a_bad_line_of_a_file_is_named_by_its_number(tmp_path: Path) -> None:
    file = tmp_path / "day.jsonl"
    file.write_bytes(line() + b"\n\n{\n")
    with pytest.raises(ConfigError, match=r"day\.jsonl:3: not JSON"):
        read_recording(file)


def test_an_empty_or_missing_recording_is_an_error(tmp_path: Path) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.touch()
    with pytest.raises(ConfigError, match="no message in it"):
        read_recording(empty)
    with pytest.raises(ConfigError, match="No such file"):
        read_recording(tmp_path / "none.jsonl")


@given(st.lists(st.floats(0, 86400), min_size=1), st.floats(0.001, 1000))
def test_the_rhythm_is_kept_and_only_stretched(times: list[float], speed: float) -> None:
    lines = [RecordedLine(at=at, topic="t", body=b"1") for at in sorted(times)]
    due = [seconds for seconds, _ in schedule(lines, speed)]
    assert due[0] == 0.0
    assert due == sorted(due)
    assert due[-1] == pytest.approx((lines[-1].at - lines[0].at) / speed)


def test_at_speed_zero_everything_is_due_at_once() -> None:
    lines = [RecordedLine(at=at, topic="t", body=b"1") for at in (1.0, 500.0)]
    assert [due for due, _ in schedule(lines, 0)] == [0.0, 0.0]


def test_a_replay_has_message_ids_of_its_own_unless_asked_to_keep_them() -> None:
    recorded = RecordedLine(at=1.0, topic="t", body=b"1", message_id="m")
    fresh = message_of(recorded, number=1, suffix="r1", now_ms=1)
    kept = message_of(recorded, number=1, suffix="", now_ms=1)
    assert (fresh.properties.message_id, kept.properties.message_id) == ("m-r1", "m")
    nameless = message_of(RecordedLine(at=1.0, topic="t", body=b"1"), number=7, suffix="", now_ms=1)
    assert nameless.properties.message_id == "line-7"


def test_where_to_go_on_is_the_first_message_without_an_answer() -> None:
    counts = ReplayCounts(begun_at=100)
    receipt = Receipt(status="routed", region="r", router="r-1", topic="t")
    opened = []
    for number in (101, 103, 100):
        counts.count(number, receipt)
        opened.append(counts.open_at)
    counts.reject(102, "not_json")
    assert [*opened, counts.open_at] == [100, 100, 102, 104]
    assert (counts.answered, counts.routed, dict(counts.rejected)) == (4, 3, {"not_json": 1})


def test_the_example_day_can_be_replayed() -> None:
    lines = read_recording(ROOT / "examples" / "newsday.jsonl")
    assert len(lines) >= 500
