"""Replies to the data plane's readers, and their small cost when many send the same verb."""

from __future__ import annotations

import json
from typing import Any

import pytest
from documented_verbs import VERBS, DocumentedVerb
from envelopes import START_MS, envelope
from fake_dataplane import (
    READER,
    ReceivedCommand,
    verbs,
)
from metric_values import value
from native_rig import FORTY_TWO, OTHER, THIRD, NativeRig, past, seqs

from gateway.answers.access import encode_auth
from gateway.native import commands
from gateway.native.readers import SHORT, VerbCache
from gateway.process import measures
from gateway.wire.position import Position, decode, encode, log_of

# One reply each.


async def test_a_subscribe_without_a_past_doesnt_wait_for_the_store(rig: NativeRig) -> None:
    await rig.store.write(past(1, 2))
    fields = await rig.subscribed(topic="news.a", ref="r")
    push = json.loads(fields.pop("push"))
    assert fields == {
        "connections": READER, "topic": ("news.a", 2), "batch": 0, "seen": 1, "reference": b'"r"',
        "messages": [],
    }  # fmt: skip
    assert decode(push.pop("position"))
    assert push == {"type": "subscribed", "ref": "r", "topic": "news.a", "recovered": False}
    assert rig.store.reads == 0


async def test_a_topic_is_sent_with_its_policy_for_slow_readers(rig: NativeRig) -> None:
    assert (await rig.subscribed(topic="news.latest"))["topic"] == ("news.latest", 1)


async def test_a_ref_is_echoed_as_it_was_sent(rig: NativeRig) -> None:
    for ref in (1, True, 1.0, "\u00fc"):
        fields = await rig.subscribed(topic="news.a", ref=ref)
        assert json.loads(fields["reference"]) == ref
        assert type(json.loads(fields["reference"])) is type(ref)
    assert (await rig.subscribed(topic="news.a"))["reference"] == b""


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.action)
async def test_each_reader_gets_one_answer_to_a_verb(rig: NativeRig, verb: DocumentedVerb) -> None:
    crowd, answered = READER + OTHER, b""
    auth, id_ = encode_auth(FORTY_TWO), envelope(1).id
    sent = verb.with_values({"topic": "user.42", "id": id_, "before": id_})
    await rig.send_text(json.dumps(sent).encode(), auth=auth, by=crowd)
    while len(answered) < len(crowd):
        answered += (await rig.visit.hear()).fields["connections"]
    assert answered == crowd
    assert await rig.replied(action="ping") == {"type": "pong"}


async def test_unsubscribe_and_ping(rig: NativeRig) -> None:
    command = await rig.command_for(action="unsubscribe", topic="news.a", ref=1)
    push = json.loads(command.fields.pop("push"))
    assert push == {"type": "unsubscribed", "ref": 1, "topic": "news.a"}
    assert command == ReceivedCommand("unsubscribe", {"connections": READER, "topic": "news.a"})
    assert await rig.replied(action="ping") == {"type": "pong"}


@pytest.mark.parametrize(
    ("verb", "code"),
    [
        ({"action": "subscribe", "topic": "user.7"}, 101),
        ({"action": "subscribe", "topic": "weather.oslo"}, 102),
        ({"action": "history", "topic": "user.7"}, 101),
        ({"action": "read", "topic": "user.7", "id": envelope(1).id}, 101),
        ({"action": "shout"}, 107),
    ],
)
async def test_refusals_are_replies(rig: NativeRig, verb: dict[str, Any], code: int) -> None:
    push = await rig.replied(**verb)
    assert (push["type"], push["code"]) == ("error", code)


async def test_what_is_no_json_is_refused(rig: NativeRig) -> None:
    for text in (b"", b"\xff", b"[]"):
        await rig.send_text(text)
        assert json.loads((await rig.visit.hear_named("reply"))["push"])["code"] == 107


async def test_a_mark_that_cant_be_sent_is_refused_for_now(rig: NativeRig) -> None:
    auth = encode_auth(FORTY_TWO)
    push = await rig.replied(action="read", topic="user.42", id=envelope(1).id, ref=5, auth=auth)
    assert (push["code"], push["temporary"], push["ref"]) == (100, True, 5)


# Texts.


async def test_a_text_is_read_once_whoever_says_it(rig: NativeRig) -> None:
    text = b'{"action":"subscribe","topic":"news.a","ref":1}'
    for by in (READER, OTHER, THIRD):
        await rig.send_text(text, by=by)
        assert (await rig.visit.hear_named("subscribe"))["connections"] == by
    assert rig.texts_read == [text]


@pytest.mark.parametrize(
    "text",
    [
        b'{"action":"ping","ref":"' + b"x" * SHORT + b'"}',
        b'{"action":"subscribe","topic":"user.42"}',
        b'{"action":"history","topic":"user.42"}',
        b'{"action":"read","topic":"user.42","id":"' + envelope(1).id.encode() + b'"}',
        b'{"action":"login","token":"x"}',
    ],
    ids=["a long one", "of a mailbox", "of its history", "of its marks", "a token"],
)
async def test_a_text_that_is_nobody_elses_is_not_remembered(rig: NativeRig, text: bytes) -> None:
    for _ in range(2):
        await rig.send_text(text)
        await rig.visit.hear()
    assert rig.texts_read == [text, text]


async def test_an_answer_counts_in_what_is_remembered_of_its_text(
    rig: NativeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Room for two texts of 170 bytes, but not for their replies, each of which is longer.
    monkeypatch.setattr(rig.serving._readers, "_cache", VerbCache(4_600))
    one, other = ({"topic": "news.a", "ref": letter * 120} for letter in "xy")
    for verb in (one, other):
        await rig.subscribed(**verb)
    before = len(rig.texts_read)
    await rig.subscribed(**other)
    assert len(rig.texts_read) == before
    await rig.subscribed(**one)
    assert len(rig.texts_read) == before + 1


async def test_who_says_the_same_is_answered_the_same_by_name(rig: NativeRig) -> None:
    text = b'{"action":"subscribe","topic":"news.latest"}'
    await rig.visit.send_events(verbs(text) + verbs(text, connections=OTHER))
    first, second = [await rig.visit.hear_named("subscribe") for _ in range(2)]
    assert (first["connections"], second["connections"]) == (READER, OTHER)
    assert {**first, "connections": OTHER} == second


async def test_the_same_text_is_answered_with_the_position_of_the_moment(rig: NativeRig) -> None:
    made = rig.news(1, topic="news.b")
    before = await rig.subscribed(topic="news.a")
    rig.core.hub.offer(made, rig.now)
    after = await rig.subscribed(topic="news.a")
    positions = [json.loads(fields["push"])["position"] for fields in (before, after)]
    assert [decode(one).covers(log_of(made), 1) for one in positions] == [False, True]


# Readers that send the same text at the same moment.


async def test_they_are_answered_as_one_and_counted_as_many(rig: NativeRig) -> None:
    subscribes, refusals = measures.VERBS.labels("subscribe"), measures.ERRORS.labels("102")
    before = subscribes.total, value(refusals)
    crowd = READER + OTHER + THIRD
    command = await rig.command_for(action="subscribe", topic="news.a", by=crowd)
    assert (command.name, command.fields["connections"]) == ("subscribe", crowd)
    command = await rig.command_for(action="subscribe", topic="weather.oslo", by=crowd)
    assert (command.name, command.fields["connections"]) == ("reply", crowd)
    command = await rig.command_for(action="unsubscribe", topic="news.a", by=crowd)
    assert (command.name, command.fields["connections"]) == ("unsubscribe", crowd)
    assert (subscribes.total, value(refusals)) == (before[0] + 3, before[1] + 3)


async def test_what_is_replayed_to_them_is_a_batch_at_once(rig: NativeRig) -> None:
    await rig.store.write(past(1, 2))
    verb = {"action": "subscribe", "topic": "news.a", "rewind": 2}
    batch = await rig.command_for(**verb, by=READER + OTHER)
    assert (batch.name, seqs(batch.fields["messages"])) == ("batch", [1, 2])
    answer = await rig.visit.hear_named("subscribe")
    assert (answer["connections"], answer["batch"]) == (READER + OTHER, 1)
    assert (await rig.subscribed(topic="news.a", rewind=2))["batch"] == 1


async def test_they_wait_for_the_store_together(rig: NativeRig) -> None:
    await rig.store.write(past(1, 2))
    push = await rig.replied(action="history", topic="news.a", by=READER + OTHER)
    assert [message["body"]["headline"] for message in push["messages"]] == [1, 2]
    assert rig.store.reads == 1


# Replays.


async def test_a_cold_topic_is_read_once_however_many_wait_and_sent_once_to_the_rest(
    rig: NativeRig,
) -> None:
    await rig.store.write(past(*range(5)))
    rig.store.released.clear()
    text = b'{"action":"subscribe","topic":"news.a","rewind":2}'
    for by in (READER, OTHER, THIRD):
        await rig.send_text(text, by=by)
    # They don't keep the others waiting.
    assert await rig.replied(action="ping") == {"type": "pong"}
    rig.store.released.set()
    first = await rig.visit.hear_named("subscribe")
    assert (first["connections"], first["batch"], seqs(first["messages"])) == (READER, 0, [3, 4])
    batch = await rig.visit.hear_named("batch")
    assert batch == {"number": 1, "topic": ("news.a", 2), "messages": first["messages"]}
    for by in (OTHER, THIRD):
        answer = await rig.visit.hear_named("subscribe")
        assert answer == {**first, "connections": by, "batch": 1, "messages": []}
    assert rig.store.reads == 1


async def test_a_rewind_beyond_memory_brings_the_older_ones_along(rig: NativeRig) -> None:
    await rig.store.write(past(*range(9)))
    fields = await rig.subscribed(topic="news.a", rewind=7)
    assert (fields["batch"], seqs(fields["messages"])) == (0, [2, 3, 4, 5, 6, 7, 8])


async def test_the_newest_version_of_each_key_is_sent(rig: NativeRig) -> None:
    old, new = past(1, 2, topic="news.latest", key="k", version=1)
    await rig.store.write([old, *past(3, topic="news.latest", key="l", version=7), new])
    fields = await rig.subscribed(topic="news.latest")
    assert [(m["key"], m["version"]) for m in fields["messages"]] == [("k", 1), ("l", 7)]
    assert seqs(fields["messages"]) == [2, 3]


async def test_of_more_than_one_replay_may_have_the_newest_are_sent(rig: NativeRig) -> None:
    bodies = [b'{"headline": %d, "text": "%s"}' % (n, b"x" * 4_000) for n in range(3)]
    made = [envelope(n, topic="news.a", at=n, body=body) for n, body in enumerate(bodies)]
    await rig.store.write(made)
    fields = await rig.subscribed(topic="news.a", rewind=3)
    assert seqs(fields["messages"]) == [1, 2]


async def test_who_asks_after_something_came_is_given_it_too(rig: NativeRig) -> None:
    await rig.store.write(past(1, 2))
    verb = {"topic": "news.a", "rewind": 3}
    assert seqs((await rig.subscribed(**verb))["messages"]) == [1, 2]
    rig.core.hub.offer(rig.news(3, topic="news.a"), rig.now)
    # The first reader that gets exactly these messages: they aren't sent as a batch.
    fields = await rig.subscribed(**verb)
    assert (fields["batch"], seqs(fields["messages"])) == (0, [1, 2, 3])
    assert (await rig.command_for(action="subscribe", **verb)).name == "batch"


async def test_a_batch_goes_on_being_sent_when_only_the_position_is_another(rig: NativeRig) -> None:
    await rig.store.write(past(1, 2))
    verb = {"topic": "news.a", "rewind": 2}
    await rig.subscribed(**verb)
    assert (await rig.command_for(action="subscribe", **verb)).name == "batch"
    before = await rig.visit.hear_named("subscribe")
    made = rig.news(1, topic="news.b")
    rig.core.hub.offer(made, rig.now)
    after = await rig.subscribed(**verb)
    assert (before["batch"], after["batch"], after["messages"]) == (1, 1, [])
    assert decode(json.loads(after["push"])["position"]).covers(log_of(made), 1)


async def test_a_batch_that_the_data_plane_has_forgotten_is_sent_again(rig: NativeRig) -> None:
    def verb(number: int) -> dict[str, Any]:
        return {"topic": f"news.t{number}", "rewind": 2}

    most = commands.MOST_BATCHES
    for number in range(1, most + 2):
        await rig.store.write(past(2 * number, 2 * number + 1, topic=f"news.t{number}"))
    for number in range(1, most + 2):
        assert (await rig.subscribed(**verb(number)))["batch"] == 0
        asked = await rig.command_for(action="subscribe", **verb(number))
        assert (asked.name, asked.fields["number"]) == ("batch", number)
        assert (await rig.visit.hear_named("subscribe"))["batch"] == number
    # The second batch is still there, the first one isn't.
    assert (await rig.subscribed(**verb(2)))["batch"] == 2
    again = await rig.command_for(action="subscribe", **verb(1))
    assert (again.name, again.fields["number"]) == ("batch", most + 2)
    assert seqs(again.fields["messages"]) == [2, 3]
    assert (await rig.visit.hear_named("subscribe"))["batch"] == most + 2


async def test_who_is_given_the_same_gets_a_batch_whatever_its_verb_says(rig: NativeRig) -> None:
    await rig.store.write(past(1, 2))
    assert (await rig.subscribed(topic="news.a", rewind=2, ref=1))["batch"] == 0
    asked = await rig.command_for(action="subscribe", topic="news.a", rewind=2, ref=2)
    assert (asked.name, seqs(asked.fields["messages"])) == ("batch", [1, 2])
    await rig.visit.hear_named("subscribe")
    for ref in (3, "x" * 60):
        answer = await rig.subscribed(topic="news.a", rewind=2, ref=ref)
        assert (answer["batch"], answer["messages"]) == (1, [])


async def test_a_verb_that_cant_be_answered_ends_its_connection(
    rig: NativeRig, expect_error_log: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(*_: Any) -> None:
        raise RuntimeError("a bug of ours")

    expect_error_log("a verb can't be answered")
    monkeypatch.setattr(rig.core.hub, "position", breaks)
    closed = await rig.command_for(action="subscribe", topic="news.a")
    assert closed.name == "close"


async def test_history_comes_from_memory_else_from_the_store(rig: NativeRig) -> None:
    await rig.store.write(past(*range(9)))
    verb = {"action": "history", "topic": "news.a", "limit": 2, "ref": 3}
    push = await rig.replied(**verb)
    assert [message["body"]["headline"] for message in push.pop("messages")] == [7, 8]
    assert push == {"type": "history", "ref": 3, "topic": "news.a", "more": True}
    assert rig.store.reads == 1
    await rig.replied(**verb)
    assert rig.store.reads == 1
    push = await rig.replied(**verb, before=past(2)[0].id)
    assert [message["body"]["headline"] for message in push["messages"]] == [0, 1]
    assert rig.store.reads == 2


async def test_without_the_store_subscribing_works_and_history_is_refused(rig: NativeRig) -> None:
    rig.store.corrupt = True
    fields = await rig.subscribed(topic="news.a", rewind=2)
    assert (fields["batch"], fields["messages"]) == (0, [])
    push = await rig.replied(action="history", topic="news.a", ref=3)
    assert (push["code"], push["temporary"], push["ref"]) == (100, True, 3)


async def test_who_resumes_is_given_what_it_missed_and_others_get_it_by_number(
    rig: NativeRig,
) -> None:
    made = [rig.news(n) for n in range(1, 7)]
    logs = rig.core.hub.logs
    logs.note_report(log_of(made[0]), 0, 0, sent_ms=int(rig.now * 1000), now=rig.core.clock())
    begin = rig.core.hub.position(rig.now)
    # Memory has three of them; the sixth is still to arrive, on the feed or by its number.
    for one in made[:5]:
        rig.core.hub.offer(one, rig.now)
    await rig.store.write(made)
    verb = {"topic": "news.breaking", "ref": 1, "position": begin}
    first = await rig.subscribed(**verb)
    push = json.loads(first["push"])
    assert (push["recovered"], push["ref"], push["position"]) == (True, 1, begin)
    assert (first["batch"], seqs(first["messages"])) == (0, [1, 2, 3, 4, 5])
    batch = await rig.command_for(action="subscribe", **verb)
    assert batch == ReceivedCommand(
        "batch", {"number": 1, "topic": ("news.breaking", 2), "messages": first["messages"]}
    )
    second = await rig.visit.hear_named("subscribe")
    assert second == {**first, "batch": 1, "messages": []}
    assert await rig.subscribed(**verb) == second
    assert rig.store.resumes == 1


async def test_who_has_missed_nothing_gets_the_position_of_the_moment(rig: NativeRig) -> None:
    made = rig.news(1)
    rig.core.hub.offer(made, rig.now)
    begin = rig.core.hub.position(rig.now)
    verb = {"topic": "news.breaking", "position": begin}
    for topic in ("news.b", "news.c"):
        rig.core.hub.offer(rig.news(2 + (topic == "news.c"), topic=topic), rig.now)
        for _ in range(2):
            fields = await rig.subscribed(**verb)
            assert (fields["batch"], fields["messages"]) == (0, [])
            push = json.loads(fields["push"])
            assert (push["recovered"], push["position"]) == (
                True, rig.core.hub.position(rig.now)
            )  # fmt: skip
    assert json.loads(fields["push"])["position"] != begin


async def test_who_resumes_with_more_than_one_replay_may_have_learns_it(rig: NativeRig) -> None:
    long = [
        rig.news(n, body=b'{"headline": %d, "text": "%s"}' % (n, b"x" * 4_000)) for n in (1, 2, 3)
    ]
    logs = rig.core.hub.logs
    logs.note_report(log_of(long[0]), 0, 0, sent_ms=int(rig.now * 1000), now=rig.core.clock())
    begin = rig.core.hub.position(rig.now)
    for one in long:
        rig.core.hub.offer(one, rig.now)
    fields = await rig.subscribed(topic="news.breaking", position=begin)
    push = json.loads(fields["push"])
    assert (push["recovered"], push["reason"]) == (False, "too_large")
    assert push["position"] == rig.core.hub.position(rig.now)
    assert seqs(fields["messages"]) == [2, 3]


async def test_a_position_that_is_too_old_for_all_is_answered_as_far_as_there_is_anything(
    rig: NativeRig,
) -> None:
    first, second = past(1, 2, topic="news.latest", key="k")
    await rig.store.write([first, second, *past(3, topic="news.latest", key="l")])
    ancient = encode(Position(START_MS - 10**9, {}))
    fields = await rig.subscribed(topic="news.latest", position=ancient)
    push = json.loads(fields["push"])
    assert (push["recovered"], push["reason"]) == (False, "expired")
    assert seqs(fields["messages"]) == [1, 2, 3]


async def test_a_position_that_is_too_old_for_all_is_answered_with_the_rewind_if_there_is_one(
    rig: NativeRig,
) -> None:
    await rig.store.write(past(1, 2, 3, topic="news.latest", key="k"))
    ancient = encode(Position(START_MS - 10**9, {}))
    fields = await rig.subscribed(topic="news.latest", position=ancient, rewind=2)
    push = json.loads(fields["push"])
    assert (push["recovered"], push["reason"]) == (False, "expired")
    assert seqs(fields["messages"]) == [2, 3]
