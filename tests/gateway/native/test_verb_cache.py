"""The memory of readers' texts stays within its bytes."""

from __future__ import annotations

from gateway.answers.ping import Ping
from gateway.native.readers import SHORT, CachedVerb, VerbCache
from gateway.past.replay import Replay
from gateway.wire.protocol import Subscribed

ANSWER = b"x" * 1_000


def verb(number: int, answer: bytes = ANSWER) -> CachedVerb:
    return CachedVerb(b"%d" % number, Ping(ref=number), answer=answer)


def test_the_oldest_verb_is_forgotten_first() -> None:
    cache = VerbCache(10_000)
    for number in range(3):
        cache.keep(verb(number))
    assert cache.find(b"0") == verb(0)
    cache.keep(verb(3))
    assert [cache.find(b"%d" % number) is None for number in range(4)] == [
        False, True, False, False
    ]  # fmt: skip


def test_however_many_texts_there_are_they_stay_within_their_bytes() -> None:
    cache = VerbCache(100_000)
    for number in range(10_000):
        cache.keep(verb(number))
        assert cache.bytes <= 100_000
    assert len(cache) > 20
    cache.clear()
    assert (len(cache), cache.bytes) == (0, 0)


def test_an_answer_that_grows_is_weighed_again() -> None:
    cache = VerbCache(10_000)
    one, other = verb(1), verb(2)
    cache.keep(one)
    cache.keep(other)
    other.answer = bytes(6_000)
    cache.update_weight(other)
    assert (cache.find(b"1"), cache.find(b"2")) == (None, other)
    cache.update_weight(one)
    assert cache.find(b"1") is None, "what is forgotten stays so"


def test_a_long_text_is_not_remembered() -> None:
    cache = VerbCache()
    long = CachedVerb(b"x" * (SHORT + 1), Ping())
    cache.keep(long)
    assert cache.find(long.text) is None


def test_what_was_replayed_is_not_kept_alive() -> None:
    one = verb(1)
    replay, reply = Replay([]), Subscribed("news.a", None, "AQ")
    one.note_answer(replay, reply, 7, b"answer")
    assert (one.reply, one.batch, one.answer) == (reply, 7, b"answer")
    assert one.replays(replay)
    # Another replay, though it has the same content.
    assert not one.replays(Replay([]))
    del replay
    assert one.replay is not None
    assert one.replay() is None


def test_what_was_never_answered_replays_nothing() -> None:
    assert not verb(1).replays(Replay([]))
