"""The state that a control plane leaves for its successor."""

from __future__ import annotations

import orjson
import pytest
from envelopes import envelope
from hypothesis import given
from hypothesis import strategies as st

from gateway.logs.known_log import KnownLog, LogSnapshot
from gateway.logs.logs import Logs, LogsSnapshot, ReturningReader
from gateway.native.saved_logs import decode_logs, encode_given, encode_logs
from gateway.native.table import MAX_BLOB
from gateway.wire.position import MAX_SEQ, Position
from newsfabric.messages.envelope import MAX_MS, Envelope
from newsfabric.store.logs import DirectoryRow, Log

LOG = Log("oregon", "oregon-router-1", 1_000_000)
OTHER = Log("dublin", "dublin-router-1", 2_000_000)


def left(logs: Logs) -> Logs:
    """Return the logs of a control plane that begins with the state that ``logs`` left."""
    later = Logs(9_000_000)
    later.restore(decode_logs(encode_logs(logs.snapshot(), MAX_BLOB)), now=500.0)
    return later


# The time that Oregon's routers have reported, by the ids of their messages.
TOLD = (("oregon", 1_000_005),)


@pytest.fixture
def logs() -> Logs:
    """Return a gateway's logs: begun at number 2, seen 3 and 5; all up to 6 is settled."""
    logs = Logs(9_000_000)
    logs.begin([DirectoryRow(LOG, version=4, low=2)], now=100.0)
    for seq in (3, 5):
        logs.note_report(LOG, seq, seq - 1, sent_ms=1_000_000 + seq, now=100.0)
        logs.mark_seen(LOG, seq)
    logs.learn(DirectoryRow(LOG, version=5, low=6), now=100.0)
    return logs


def test_what_is_left_is_read_as_it_was_written(logs: Logs) -> None:
    expected = LogSnapshot(
        log=LOG,
        start=2,
        seen=((1, 3), (5, 5)),
        skipped=(),
        low=6,
        ended=None,
        voids=(),
        whole_ms=1_000_003,
    )
    found = decode_logs(encode_logs(logs.snapshot(), MAX_BLOB))
    assert found == LogsSnapshot(
        (expected,), 9_000_000, max_lead_ms=900_005, times=TOLD, min_lead_ms=900_003
    )


def test_of_a_log_that_ended_its_end_and_what_was_void_is_left(logs: Logs) -> None:
    logs.learn(DirectoryRow(LOG, version=6, low=6, ended=9, voids=((4, 4), (8, 8))), now=100.0)
    expected = LogSnapshot(
        log=LOG,
        start=2,
        seen=((1, 5), (8, 8)),
        skipped=((4, 4), (8, 8)),
        low=6,
        ended=9,
        voids=((4, 4), (8, 8)),
        whole_ms=1_000_005,
    )
    found = decode_logs(encode_logs(logs.snapshot(), MAX_BLOB))
    assert found == LogsSnapshot(
        (expected,), 9_000_000, max_lead_ms=900_005, times=TOLD, min_lead_ms=900_003
    )


@pytest.mark.parametrize("least", [b"[7]", b'"1"', b"1.5", b"281474976710656"])
def test_what_is_no_time_is_an_error(least: bytes) -> None:
    with pytest.raises(ValueError, match="expected a whole number"):
        decode_logs(b"[4,9000000,0,[],[7,[]," + least + b"]]")


def test_the_next_one_misses_what_the_last_one_missed(logs: Logs) -> None:
    known = left(logs).find(LOG)
    assert known is not None
    assert (known.start, known.mark, known.missing()) == (2, 3, [(4, 4), (6, 6)])


def test_the_next_one_says_the_same_of_every_number(logs: Logs) -> None:
    logs.learn(DirectoryRow(LOG, version=6, low=6, ended=9, voids=((4, 4), (8, 8))), now=100.0)
    later = left(logs)
    assert [later.was_given(LOG, seq) for seq in range(1, 11)] == [
        True, True, True, False, True, False, False, False, False, False,
    ]  # fmt: skip
    for seq in range(1, 11):
        assert later.was_given(LOG, seq) == logs.was_given(LOG, seq)
        assert later.cannot_end_void(LOG, seq) == logs.cannot_end_void(LOG, seq)
    assert later.listing.token(9_500_000) == logs.listing.token(9_500_000)


def learned(logs: Logs, row: DirectoryRow) -> KnownLog:
    logs.learn(row, now=500.0)
    known = logs.find(row.log)
    assert known is not None
    return known


def test_a_log_that_wasnt_left_is_expected_from_its_first_number(logs: Logs) -> None:
    known = learned(left(logs), DirectoryRow(OTHER, version=3, low=2))
    assert known.missing() == [(1, 2)]


def test_a_directory_row_that_was_known_before_is_learned_again(logs: Logs) -> None:
    known = learned(left(logs), DirectoryRow(LOG, version=5, low=7))
    assert known.missing() == [(4, 4), (6, 7)]


def message(log: Log, seq: int) -> Envelope:
    return envelope(seq, origin=log.region, router=log.router, epoch=log.epoch)


def test_what_was_published_since_counts_as_seen(logs: Logs) -> None:
    marks = b"".join(encode_given(message(LOG, seq)) for seq in (6, 4, 6))
    (log,) = decode_logs(encode_logs(logs.snapshot(), MAX_BLOB) + marks).logs
    assert (log.start, log.seen, log.low) == (2, ((1, 6),), 6)


def test_so_does_what_was_published_of_a_log_that_wasnt_left(logs: Logs) -> None:
    blob = encode_logs(logs.snapshot(), MAX_BLOB) + encode_given(message(OTHER, 2))
    later = Logs(9_000_000)
    later.restore(decode_logs(blob), now=500.0)
    known = learned(later, DirectoryRow(OTHER, version=3, low=3))
    assert (known.start, known.missing()) == (0, [(1, 1), (3, 3)])


def test_several_logs_are_left_and_none() -> None:
    logs = Logs(9_000_000)
    assert decode_logs(encode_logs(logs.snapshot(), MAX_BLOB)) == LogsSnapshot((), 9_000_000)
    logs.begin([DirectoryRow(LOG, low=2), DirectoryRow(OTHER, low=7)], now=100.0)
    left = decode_logs(encode_logs(logs.snapshot(), MAX_BLOB))
    assert [(one.log, one.start) for one in left.logs] == [(LOG, 2), (OTHER, 7)]


def test_of_too_many_runs_the_first_are_left_and_the_rest_is_read_once_more() -> None:
    logs = Logs(9_000_000)
    for seq in range(1, 401, 2):
        logs.mark_seen(LOG, seq)
    logs.learn(DirectoryRow(LOG, version=2, low=400), now=100.0)
    whole = encode_logs(logs.snapshot(), MAX_BLOB)
    assert encode_logs(logs.snapshot(), len(whole)) == whole
    cut = decode_logs(encode_logs(logs.snapshot(), len(whole) - 1))
    assert cut.logs[0].seen == tuple((seq, seq) for seq in range(1, 129, 2))
    later = Logs(9_000_000)
    later.restore(cut, now=500.0)
    known = later.find(LOG)
    assert known is not None
    assert known.missing() == [*((seq, seq) for seq in range(2, 127, 2)), (128, 400)]


def test_of_too_many_logs_those_that_ended_first_are_left_out_and_not_read_again() -> None:
    logs = Logs(9_000_000)
    for n in range(40):
        log = Log("oregon", "oregon-router-1", 1_000_000 + n)
        for seq in (1, 2):
            logs.mark_seen(log, seq)
        logs.learn(DirectoryRow(log, version=3, low=2, ended=2), now=100.0)
    open_log = Log("oregon", "oregon-router-1", 999_999)
    logs.mark_seen(open_log, 1)
    whole = encode_logs(logs.snapshot(), MAX_BLOB)
    left = decode_logs(encode_logs(logs.snapshot(), len(whole) // 2))
    epochs = [one.log.epoch for one in left.logs]
    # A log that may get more numbers is left, however old.
    assert epochs[-1] == 999_999
    oldest = min(epochs[:-1])
    assert epochs[:-1] == list(range(oldest, 1_000_040))
    assert left.forgotten_ms == oldest - 1
    later = Logs(9_000_000)
    later.restore(left, now=500.0)
    gone = Log("oregon", "oregon-router-1", 1_000_000)
    assert later.learn(DirectoryRow(gone, version=3, low=2, ended=2), now=500.0) is None
    # A reader that may lack something of it learns it.
    assert ReturningReader(Position(1_000_000, {}), later).may_lack_forgotten()


def test_more_logs_than_there_is_room_for_are_not_left() -> None:
    logs = Logs(9_000_000)
    logs.begin([DirectoryRow(LOG, low=2), DirectoryRow(OTHER, low=7)], now=100.0)
    whole = encode_logs(logs.snapshot(), MAX_BLOB)
    with pytest.raises(ValueError, match="2 logs are more than a successor can be sent"):
        encode_logs(logs.snapshot(), len(whole) - 1)


NO_RUNS: list[object] = [
    7, None, {}, [7], [[1]], [[1, 2, 3]], [[0, 1]], [[2, 1]], [[-1, 1]], [[1, True]],
    [[1, MAX_SEQ + 1]], [[4, 5], [1, 2]],
]  # fmt: skip
FIELDS = ["oregon", "r", 7, 0, [[1, 2], [5, 5]], [[2, 2]], 2, 6, [[2, 2]], 9]


def marks(logs: object) -> bytes:
    return orjson.dumps([4, 0, 0, logs, [None, [], None]])


@pytest.mark.parametrize(
    "blob",
    [
        b"", b"{", b"7", b"[]", b"[4]", b"[4,0,0,[]]", b"[4,0,0,[],0]",
        b"[3,0,0,[],[null,[],null]]", b'["4",0,0,[],[null,[],null]]',
        b"[4,0,0,7,[null,[],null]]", b"[4,0,0,[7],[null,[],null]]",
        b'[4,0,0,{"a":1},[null,[],null]]', b"[4,0,0,[[]],[null,[],null]]", b"\xff",
        b"[4,0,0,[],[0]]", b'[4,0,0,[],["1",[],null]]', b"[4,0,0,[],[0,[[7,1]],null]]",
        b'[4,0,0,[],[0,[["oregon",-1]],null]]', b"[4,0,0,[],[0,7,null]]", b"[4,0,0,[],[0,[],[]]]",
        b"[4,-1,0,[],[null,[],null]]", b"[4,0,null,[],[null,[],null]]",
        b"[4,281474976710656,0,[],[null,[],null]]",
        marks([FIELDS[:-1]]), marks([[*FIELDS, 1]]),
        marks([]) + b"\n", marks([]) + b"\n7", marks([]) + b'\n["oregon","r",7]',
        marks([]) + b'\n["oregon","r",7,0]', marks([]) + b'\n["oregon",null,7,1]',
        b'\n["oregon","r",7,1]',
    ],
)  # fmt: skip
def test_what_isnt_marks_is_refused(blob: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - any one is a refusal
        decode_logs(blob)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *((at, value) for at in (0, 1) for value in (1, None, ["r"])),
        *((at, value) for at in (2, 3, 6, 9) for value in (-1, True, 1.0, "1", None)),
        *((at, MAX_MS + 1) for at in (2, 9)),
        *((at, MAX_SEQ + 1) for at in (3, 6, 7)),
        *((7, value) for value in (-1, True, 1.0, "1")),
        *(
            (at, value)
            for at in (4, 5, 8)
            for value in NO_RUNS
        ),
    ],
)  # fmt: skip
def test_a_field_that_nobody_can_have_left_is_refused(field: int, value: object) -> None:
    fields = list(FIELDS)
    assert len(decode_logs(marks([fields])).logs) == 1
    fields[field] = value
    with pytest.raises(ValueError, match=r"expected|name|runs|state|unpack"):
        decode_logs(marks([fields]))


json = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-1, 9), st.floats(allow_nan=False), st.text()),
    lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.text(), inner)),
    max_leaves=20,
)
blobs = st.one_of(st.binary(max_size=100), json.map(marks))


@given(blobs)
def test_any_bytes_are_marks_or_refused(blob: bytes) -> None:
    try:
        left = decode_logs(blob)
    except ValueError:
        return
    assert decode_logs(encode_logs(left, MAX_BLOB)) == left
