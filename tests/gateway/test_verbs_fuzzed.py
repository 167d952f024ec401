"""The parsers in Python answer any bytes of a stranger with a value.

``make fuzz`` runs this with many more examples than the tests do (``NEWSFABRIC_EXAMPLES``).
"""

from __future__ import annotations

import contextlib
import json
import os
import random
from typing import Any, Final

import orjson
from documented_verbs import VERBS as DOCUMENTED
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.answers.history import History
from gateway.answers.mark import SetMark
from gateway.answers.subscribe import Subscribe
from gateway.answers.verbs import BY_ACTION, Intent, VerbParser
from gateway.native.events import Decoder
from gateway.native.saved_logs import decode_logs
from gateway.native.wire import WireError
from gateway.wire.frames import encode_push
from gateway.wire.position import decode as decode_position
from gateway.wire.protocol import ReaderLimits, Subscribed, VerbRefusal, error_push
from gateway.wire.rfc6455 import FrameParser
from newsfabric.closing import ErrorCode
from newsfabric.topics import TopicPolicy, TopicTable

EXAMPLES: Final = int(os.environ.get("NEWSFABRIC_EXAMPLES", "60"))
LIMITS: Final = ReaderLimits()
VERBS: Final = VerbParser(
    TopicTable([TopicPolicy(pattern="news.#"), TopicPolicy(pattern="user.*", access="owner")]),
    LIMITS,
)

fuzzed = settings(max_examples=EXAMPLES)
texts = st.text(max_size=20)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | texts
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=6,
)
documented = {
    name: st.just(value) | values for verb in DOCUMENTED for name, value in verb.fields.items()
}
known = documented | {
    "action": st.sampled_from(sorted(BY_ACTION)) | values,
    "id": st.sampled_from(["01941f29-7c00-7000-8000-000000000000"]) | values,
    "topic": st.sampled_from(["news.a", "user.7", "news..a", "news.a\n", "other"]) | values,
    "ref": values,
    "rewind": st.from_regex(r"[0-9]{0,12}(ms|s|m|h|d)?", fullmatch=True) | values,
    "position": values,
    "limit": st.integers(-2, 102) | values,
    "before": st.uuids().map(str) | values,
}
verbs = st.fixed_dictionaries({}, optional=known)


@fuzzed
@given(verb=verbs)
def test_a_verb_becomes_an_intent_that_can_be_answered(verb: dict[str, Any]) -> None:
    check(VERBS.parse(json.dumps(verb)))


@fuzzed
@given(verb=verbs, seed=st.integers())
def test_a_verb_with_wrong_bytes_becomes_one_too(verb: dict[str, Any], seed: int) -> None:
    dice = random.Random(seed)
    data = bytearray(json.dumps(verb, ensure_ascii=False).encode("utf-8", "surrogatepass"))
    for _ in range(dice.randrange(4)):
        at = dice.randrange(len(data) + 1)
        data[at : at + dice.randrange(3)] = dice.randbytes(dice.randrange(3))
    check(VERBS.parse(bytes(data)))


@fuzzed
@given(data=st.binary(max_size=200) | st.text(max_size=200))
def test_any_text_becomes_one_too(data: bytes | str) -> None:
    check(VERBS.parse(data))


def check(intent: Intent) -> None:
    """Check that ``intent`` keeps its limits, and that its answer is JSON with the same ``ref``."""
    match intent:
        case VerbRefusal():
            push = error_push(intent)
            assert intent.code in set(ErrorCode)
            assert len(push) < 1_000
        case SetMark():
            assert (intent.topic, intent.id[14:]) == ("user.7", "7000-8000-000000000000")
            push = encode_push("marked", ref=intent.ref)
        case Subscribe(rewind=rewind):
            push = Subscribed(intent.topic, intent.ref, "AQ").push()
            if rewind is not None:
                assert (rewind.count is None) != (rewind.seconds is None)
                assert 1 <= (rewind.count or 1) <= LIMITS.rewind
                assert 0 < (rewind.seconds or 1) <= LIMITS.rewind_seconds
        case History():
            assert 1 <= intent.limit <= LIMITS.history
            push = orjson.dumps({"ref": intent.ref})
        case _:
            push = encode_push("reply", ref=intent.ref)
    assert orjson.loads(push).get("ref") == intent.ref
    # The data plane gets its length in two bytes.
    assert len(orjson.dumps(intent.ref)) < 1 << 16


@fuzzed
@given(data=st.binary(max_size=300))
def test_any_bytes_are_events_or_an_error(data: bytes) -> None:
    with contextlib.suppress(WireError):
        list(Decoder().feed(data))


@fuzzed
@given(blob=st.binary(max_size=100) | values.map(lambda value: json.dumps(value).encode()))
def test_any_blob_is_marks_or_an_error(blob: bytes) -> None:
    with contextlib.suppress(ValueError):
        decode_logs(blob)


@fuzzed
@given(rest=st.lists(values, max_size=5))
def test_any_list_is_marks_or_an_error(rest: list[Any]) -> None:
    with contextlib.suppress(ValueError):
        decode_logs(json.dumps([1, 1_700_000_000_000, rest]).encode())


@fuzzed
@given(token=st.text(alphabet="AQBwxyz0189-_=+/ é", max_size=60))
def test_any_token_is_a_position_or_an_error(token: str) -> None:
    with contextlib.suppress(ValueError):
        decode_position(token)


@fuzzed
@given(data=st.binary(max_size=300), cuts=st.lists(st.integers(0, 300), max_size=6))
def test_however_bytes_are_cut_the_frames_are_the_same(data: bytes, cuts: list[int]) -> None:
    whole, pieces = FrameParser(100), FrameParser(100)
    expected, at, found = whole.feed(data), 0, []
    for cut in [*sorted(cuts), len(data)]:
        found += pieces.feed(data[at:cut])
        at = max(at, cut)
    assert (found, pieces.violation) == (expected, whole.violation)
