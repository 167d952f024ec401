"""The same plays on both engines: every reader must receive the same.

They test more than tests/gateway/behaviour can list: random sequences of verbs, messages, copies,
broken frames and goodbyes, with bytes cut anywhere. ``NEWSFABRIC_EXAMPLES=5000`` searches
longer. If the engines differ, docs/protocol.md, RFC 6455 and SockJS 1.0 decide which is right.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
from documented_verbs import VERBS
from gateways import ENGINES, Box, opened_box
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from plays import (
    CLOSED_TOPICS,
    TABLE,
    TOPICS,
    Again,
    Break,
    Connect,
    Goodbye,
    Kind,
    Past,
    Play,
    PlayedMessage,
    Publish,
    Send,
    Step,
    TickOf,
    Vanish,
    frame,
    performed,
)
from signing import AUDIENCE, ISSUER, ed25519, keys_file, token

from gateway.answers.verbs import BY_ACTION
from gateway.process.settings import TokenSettings
from gateway.wire.frames import BINARY, CLOSE, PING, PONG, TEXT
from gateway.wire.protocol import ReaderLimits

EXAMPLES: Final = int(os.environ.get("NEWSFABRIC_EXAMPLES", "60"))
FRAME_BYTES: Final = 600
# One big message and all the small ones fit into a replay, but two big ones don't. So the result
# can't depend on the length of a position, which messages read from the store lack.
SIZES: Final = (0, 0, 100, 9_000)
REPLAY_BYTES: Final = 14_000
# No heartbeat comes in between, and no reader is too fast; all other limits can be reached.
SETTINGS: Final[dict[str, Any]] = {
    "heartbeat": 3600.0,
    "replay_bytes": REPLAY_BYTES,
    "reader": ReaderLimits(
        frame_bytes=FRAME_BYTES, topics=4, verbs=1_000_000, history=5, rewind=5, ref_bytes=40
    ),
}

pytestmark = [
    pytest.mark.skipif("native" not in ENGINES, reason="the native engine isn't built"),
    pytest.mark.timeout(120 + 5 * EXAMPLES),
]


# Good tokens of two users, and bad ones.
TOKENS: Final = (
    token("me", ttl=36_000.0),
    token("me", ttl=36_000.0, topics=["#"]),
    token("somebody", ttl=36_000.0),
    token("me", ttl=-60.0),
    token("me", key=ed25519("forged")),
    "x",
)


@pytest.fixture
async def boxes(tmp_path: Path) -> AsyncIterator[list[Box]]:
    """Open a box of each engine, for all examples of a test."""
    token_settings = TokenSettings(keys=keys_file(tmp_path), audience=AUDIENCE, issuer=ISSUER)
    async with contextlib.AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(
                opened_box(engine, table=TABLE, tokens=token_settings, **SETTINGS)
            )
            for engine in ("tornado", "native")
        ]


def weighted(strategies: list[st.SearchStrategy[Any]]) -> st.SearchStrategy[Any]:
    """Choose any of ``strategies``; repeated ones are chosen more often."""
    return st.integers(0, len(strategies) - 1).flatmap(lambda at: strategies[at])


readers = st.integers(0, 2)
cuts = st.lists(st.integers(0, 2_000), max_size=4).map(tuple)
# The first topics are chosen most often.
topic_numbers = st.sampled_from([0, 0, 0, 1, 1, 2, 2, 3])
topics = topic_numbers.map(lambda number: TOPICS[number])
kinds: st.SearchStrategy[Kind] = st.sampled_from(["raw", "deflate", "sockjs"])
keys = st.sampled_from([None, "a", "b"])
versions = st.none() | st.integers(0, 3)
refs = st.sampled_from(
    [None, 1, "r", True, 1.5, -0.0, 2**70, '\u2028é\U0001f600"\\', "x" * 41, {}, []]
)

any_topic = topics | st.sampled_from([*CLOSED_TOPICS, 7, None])
rewinds = st.sampled_from(
    [1, 2, 5, 8, 9, 0, -1, True, 1.0, "5m", "3h", "7d", "8d", "0s", "soon", None]
)
subscribes = st.fixed_dictionaries(
    {"action": st.just("subscribe"), "topic": topics},
    optional={"rewind": st.sampled_from([1, 2, 4, 5, "5m", "3h", "7d"]), "ref": st.just(1)},
)
# Ids of messages of the play.
ids = st.integers(0, 9).map("#{}".format)
histories = st.fixed_dictionaries(
    {"action": st.just("history"), "topic": topics},
    optional={"limit": st.integers(1, 5), "before": ids},
)
logins = st.fixed_dictionaries(
    {"action": st.sampled_from(["login", "login", "refresh"]), "token": st.sampled_from(TOKENS)},
    optional={"ref": st.just(2)},
)
# Values of fields, by their names; other fields have the value that docs/protocol.md shows.
values = {
    "topic": topics | st.just("user.me"),
    "token": st.sampled_from(TOKENS),
    "limit": st.integers(1, 5),
    "before": ids,
    "id": ids,
}
documented_verbs = st.sampled_from(VERBS).flatmap(
    lambda verb: st.fixed_dictionaries(
        {name: values.get(name, st.just(value)) for name, value in verb.fields.items()}
    )
)
unsubscribes = st.fixed_dictionaries({"action": st.just("unsubscribe"), "topic": topics})
strange_verbs = st.fixed_dictionaries(
    {},
    optional={
        "action": st.sampled_from([*BY_ACTION, "shout", 7, None]),
        "topic": any_topic,
        "ref": refs,
        "rewind": rewinds,
        "position": st.sampled_from(["", "AQ", "of another fabric", 7]),
        "limit": st.sampled_from([0, 6, True, 2.0, "2"]),
        "id": st.sampled_from(["", "01941f29-7c00-7000-8000-000000000000", 1]),
        "token": st.sampled_from(["", None, 7, TOKENS[0]]),
        "before": st.sampled_from(["", "01941f29-7c00-7000-8000-000000000000", "0" * 36, 1]),
    },
)
verbs = weighted(
    [subscribes] * 4 + [histories] * 2 + [unsubscribes, logins, strange_verbs, documented_verbs]
)
verb_texts = verbs.map(lambda verb: json.dumps(verb, ensure_ascii=False))
# Pings as a page's library writes them, and some that nearly are.
pings = st.sampled_from(
    ["", ',"ref":1', ',"ref":"r"', ',"ref":-1', ',"ref":"\\n"', ',"ref":"' + "x" * 41 + '"', ","]
).map('{{"action":"ping"{}}}'.format)
no_verbs = st.sampled_from(
    ["", "{", "[]", "7", "\u0000", '{"action":"ping","action":"shout"}', "{}" + " " * 500]
)
# Payloads in a SockJS session that aren't an array of one verb.
payloads = st.sampled_from(
    ["", "[]", '"{}"', "{}", "7", "null", '[["a"],7,null,"\\ud83d\\ude00"]', ' [ "{}" , "{}" ] ']
)
control_frames = st.tuples(st.sampled_from([PING, PONG]), st.binary(max_size=125))
messages = st.builds(
    PlayedMessage,
    verb=weighted([verb_texts] * 8 + [pings, no_verbs]),
    cuts=cuts,
    between=st.lists(control_frames, max_size=2).map(tuple),
    opcode=st.sampled_from([TEXT, TEXT, TEXT, BINARY]),
    compress=st.booleans(),
)
strange_messages = st.builds(PlayedMessage, verb=payloads, cuts=cuts, bare=st.just(True))

bad_texts = st.sampled_from(
    [b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"a\xe2\x82x"]
)
closes = st.sampled_from([0, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000, 65535])
# Each of these is wrong as soon as its bytes arrive.
breaks = st.one_of(
    st.sampled_from([0x10, 0x20]).map(lambda reserved: frame(0x80 | TEXT | reserved, b"{}")),
    st.sampled_from([3, 7, 0xB, 0xF]).map(lambda opcode: frame(0x80 | opcode, b"")),
    st.just(b"\x81\x02"),
    st.sampled_from([PING, PONG, CLOSE]).map(lambda opcode: frame(opcode, b"")),
    st.just(bytes((0x80 | PING, 0xFE))),
    st.sampled_from([b"\x81\xfe\0\x7d", b"\x81\xff" + (65535).to_bytes(8, "big")]),
    st.sampled_from([b"\x81\xff" + b"\xff" * 8, b"\x81\xfe\x02\x59", b"\x02\xfe\x02\x59"]),
    st.just(frame(TEXT, b"") + frame(0, b"") * (FRAME_BYTES + 1)),
    st.just(frame(TEXT, b"x" * 400) + b"\x80\xfe\x00\xc9"),
    st.just(frame(0x80, b"x")),
    st.just(b"\x80\xfe\x02\x59"),
    st.just(b"\x80\x81\0\0\0\0"),
    st.just(frame(TEXT, b"{") + frame(TEXT, b"}")),
    st.just(frame(TEXT, b"{") + frame(0x80 | BINARY, b"}")),
    st.just(frame(0x80 | CLOSE, b"\x03")),
    st.just(frame(0x80 | CLOSE, b"\x03\xe8\xff")),
    closes.map(lambda code: frame(0x80 | CLOSE, code.to_bytes(2, "big"))),
    bad_texts.map(lambda text: frame(0x80 | TEXT, text)),
    bad_texts.map(lambda text: frame(TEXT, text)),
    bad_texts.map(lambda text: frame(TEXT, b"\xc3") + frame(0, b"\xa9" + text)),
    bad_texts.map(lambda text: frame(TEXT, b"\xc3") + frame(0x80 | PING, b"") + frame(0, b"x")),
    bad_texts.map(lambda text: frame(0x80 | TEXT, text + b"more")[:-1]),
    st.just(frame(0x80 | TEXT, b"\xe2\x82")),
)
garbage = st.sampled_from([b"", b"\x81", b"\xff" * 40, frame(0x80 | TEXT, b'{"action":"ping"}')])
farewells = st.sampled_from([1000, 1001, 1003, 1007, 1012, 1014, 3000, 4999]).flatmap(
    lambda code: st.sampled_from([b"", "bye é".encode(), b"x" * 123]).map(
        lambda text: code.to_bytes(2, "big") + text
    )
)
comings = st.builds(Connect, readers, kinds, cuts)
sends = st.builds(
    Send,
    readers,
    st.lists(weighted([messages] * 9 + [strange_messages]), min_size=1, max_size=4).map(tuple),
    cuts,
)
publications = st.builds(
    Publish,
    topic=topic_numbers,
    size=st.sampled_from(SIZES),
    key=keys,
    version=versions,
    expires=st.sampled_from(["never", "never", "never", "long ago", "one day"]),
    copies=st.integers(1, 3),
)
endings = st.one_of(
    st.builds(Break, readers, st.tuples(breaks, garbage).map(b"".join), cuts),
    st.builds(Goodbye, readers, st.just(b"") | farewells, cuts),
    st.builds(Vanish, readers, st.sampled_from([b"", b"\x81", frame(TEXT, b"{")]), st.booleans()),
)
others = st.builds(Again, st.integers(0, 9)) | st.builds(TickOf, st.integers(0, 3))
# Mostly ordinary steps, so that readers receive something.
steps: st.SearchStrategy[Step] = weighted(
    [sends] * 6 + [publications] * 6 + [comings, endings, others]
)
pasts = st.builds(
    Past,
    topic=topic_numbers,
    size=st.sampled_from(SIZES),
    key=keys,
    version=versions,
    hours_ago=st.sampled_from([0, 1, 6, 24]),
)
plays = st.builds(
    lambda past, first, second, more: Play(
        tuple(past), (Connect(0, first), Connect(1, second), *more)
    ),
    st.lists(pasts, max_size=8),
    kinds,
    kinds,
    st.lists(steps, min_size=8, max_size=40),
)


@settings(
    max_examples=EXAMPLES,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(play=plays)
async def test_readers_see_the_same_of_every_play(boxes: list[Box], play: Play) -> None:
    tornado, native = await performed(play, boxes)
    assert native == tornado
