"""The memory of readers' texts stays within its bytes."""

from __future__ import annotations

from gateway.answers.ping import Ping
from gateway.native.readers import SHORT, CachedVerb, VerbCache
from gateway.past.replay import Replay
from gateway.wire.protocol import Subscribed

ANSWER = b"x" * 1_000


def said(number: int, answer: bytes = ANSWER) -> CachedVerb:
    return CachedVerb(b"%d" % number, Ping(ref=number), answer=answer)


def test_the_oldest_verb_is_forgotten_first() -> None:
    sayings = VerbCache(10_000)
    for number in range(3):
        sayings.keep(said(number))
    assert sayings.find(b"0") == said(0)
    sayings.keep(said(3))
    assert [sayings.find(b"%d" % number) is None for number in range(4)] == [
        False, True, False, False
    ]  # fmt: skip


def test_however_many_texts_there_are_they_stay_within_their_bytes() -> None:
    sayings = VerbCache(100_000)
    for number in range(10_000):
        sayings.keep(said(number))
        assert sayings.bytes <= 100_000
    assert len(sayings) > 20
    sayings.clear()
    assert (len(sayings), sayings.bytes) == (0, 0)


def test_an_answer_that_grows_is_weighed_again() -> None:
    sayings = VerbCache(10_000)
    one, other = said(1), said(2)
    sayings.keep(one)
    sayings.keep(other)
    other.answer = bytes(6_000)
    sayings.update_weight(other)
    assert (sayings.find(b"1"), sayings.find(b"2")) == (None, other)
    sayings.update_weight(one)
    assert sayings.find(b"1") is None, "what is forgotten stays so"


def test_a_long_text_is_not_remembered() -> None:
    sayings = VerbCache()
    long = CachedVerb(b"x" * (SHORT + 1), Ping())
    sayings.keep(long)
    assert sayings.find(long.text) is None


def test_what_was_replayed_is_not_kept_alive() -> None:
    one = said(1)
    replay, told = Replay([]), Subscribed("news.a", None, "AQ")
    one.note(replay, told, 7, b"answer")
    assert (one.reply, one.batch, one.answer) == (told, 7, b"answer")
    assert one.replays(replay)
    # Another replay, though it has the same content.
    assert not one.replays(Replay([]))
    del replay
    assert one.replay is not None
    assert one.replay() is None


def test_what_was_never_answered_replays_nothing() -> None:
    assert not said(1).replays(Replay([]))
