"""Logins of the data plane's readers, and their verbs when it goes away or has no room."""

from __future__ import annotations

import json
from pathlib import Path

from fake_dataplane import (
    READER,
    fake_dataplane,
)
from gateways import until
from metric_values import value
from native_desk import FORTY_TWO, OTHER, THIRD, Desk, attached, past, seqs
from signing import token

from gateway.answers.access import AuthState, decode_auth, encode_auth
from gateway.native import commands
from gateway.process import measures
from gateway.wire.position import log_of


async def test_an_auth_state_says_who_speaks(desk: Desk) -> None:
    auth = encode_auth(FORTY_TWO)
    fields = await desk.subscribed(topic="user.42", auth=auth)
    push = json.loads(fields["push"])
    assert (fields["connections"], push["topic"], push["recovered"]) == (READER, "user.42", True)
    assert (await desk.replied(action="subscribe", topic="user.7", auth=auth))["code"] == 103


async def test_the_same_text_is_answered_by_who_says_it(desk: Desk) -> None:
    verb = {"action": "subscribe", "topic": "desk.plans"}
    auth = encode_auth(FORTY_TWO)
    for _ in range(2):
        assert (await desk.replied(**verb))["code"] == 101
        assert (await desk.ask(**verb, auth=auth)).name == "subscribe"
    assert len(desk.texts_read) == 1


async def test_with_an_auth_state_that_another_release_made_one_is_a_stranger(desk: Desk) -> None:
    verb = {"action": "subscribe", "topic": "user.42"}
    assert (await desk.replied(**verb, auth=b"of another release"))["code"] == 101
    fields = await desk.subscribed(topic="news.a", auth=b"of another release")
    assert fields["topic"] == ("news.a", 2)


async def test_who_logs_in_is_given_an_auth_state(desk: Desk) -> None:
    auth = encode_auth(AuthState(None, 1))
    command = await desk.ask(action="login", token=token("42"), ref="r", auth=auth)
    assert (command.name, command.fields["connections"], command.fields["user"]) == (
        "auth", READER, "42",
    )  # fmt: skip
    push = json.loads(command.fields["push"])
    assert (push["type"], push["user"], push["ref"]) == ("logged_in", "42", "r")
    auth = decode_auth(command.fields["auth"])
    assert auth.login is not None
    # Its earlier errors aren't forgotten.
    assert (auth.login.user, auth.bad_tokens) == ("42", 1)
    assert command.fields["ends_ms"] == auth.login.ends_ms
    fields = await desk.subscribed(topic="user.42", auth=command.fields["auth"])
    assert fields["topic"] == ("user.42", 2)


async def test_who_logs_in_with_the_same_token_in_the_same_moment_is_decided_on_alone(
    desk: Desk,
) -> None:
    good = measures.TOKENS.labels("good")
    before = value(good)
    first = await desk.ask(action="login", token=token("42"), by=READER + OTHER)
    second = await desk.visit.hear_named("auth")
    assert (first.fields["connections"], second["connections"]) == (READER, OTHER)
    assert (first.fields["user"], second["user"]) == ("42", "42")
    assert value(good) == before + 2


async def test_bad_tokens_are_counted_in_the_auth_state_and_one_too_many_is_the_end(
    desk: Desk,
) -> None:
    first = await desk.ask(action="login", token="x")
    assert (first.name, first.fields["user"]) == ("auth", "")
    assert json.loads(first.fields["push"])["code"] == 101
    assert decode_auth(first.fields["auth"]) == AuthState(None, 1)
    second = await desk.ask(action="login", token="x", auth=first.fields["auth"])
    assert decode_auth(second.fields["auth"]) == AuthState(None, 2)
    closed = await desk.visit.hear_named("close")
    assert (closed["connections"], closed["reason"]) == (READER, "invalid_token")


# Attachments, and room.


async def test_answers_that_come_after_their_attachment_arent_sent(
    desk: Desk, tmp_path: Path
) -> None:
    await desk.store.write(past(1, 2))
    desk.store.gate.clear()
    text = b'{"action":"subscribe","topic":"news.a","rewind":2}'
    await desk.say(text)
    await desk.say(text, by=OTHER)
    await desk.say(b'{"action":"history","topic":"news.a"}', by=THIRD)
    assert await desk.replied(action="ping") == {"type": "pong"}
    await desk.leaves()
    async with fake_dataplane(tmp_path / "control") as fake:
        desk.visit = await attached(fake, desk.plane, attachment=2)
        desk.store.gate.set()
        # The topic's past is worth reading for any reader.
        await until(lambda: desk.core.hub.memory("news.a").warm)
        assert await desk.replied(action="ping") == {"type": "pong"}
        # The data plane sends the readers' verbs again.
        await desk.say(text)
        answer = await desk.visit.hear_named("subscribe")
        assert (answer["batch"], seqs(answer["messages"])) == (0, [1, 2])
        assert desk.store.reads == 1


async def test_what_one_attachment_had_is_sent_anew_to_the_next(desk: Desk, tmp_path: Path) -> None:
    await desk.store.write(past(1, 2))
    verb = {"topic": "news.a", "rewind": 2}
    await desk.subscribed(**verb)
    assert (await desk.ask(action="subscribe", **verb)).fields["number"] == 1
    await desk.visit.hear_named("subscribe")
    await desk.leaves()
    async with fake_dataplane(tmp_path / "control") as fake:
        desk.visit = await attached(fake, desk.plane, attachment=2)
        first = await desk.subscribed(**verb)
        assert (first["batch"], seqs(first["messages"])) == (0, [1, 2])
        batch = await desk.ask(action="subscribe", **verb)
        assert (batch.name, batch.fields["number"]) == ("batch", 2)
        assert (await desk.visit.hear_named("subscribe"))["batch"] == 2


async def test_nothing_is_read_for_a_reader_until_its_data_plane_takes_what_there_is(
    desk: Desk,
) -> None:
    await desk.store.write(past(1, 2))
    huge = commands.reply(READER, bytes(12 << 20))
    for _ in range(2):
        desk.plane.send(huge)
    assert desk.plane.room.is_full()
    desk.plane.room.answer(READER, b"", b'{"action":"subscribe","topic":"news.a","rewind":2}')
    await desk.visit.hear_named("reply")
    # As much as before still waits.
    assert (desk.plane.room.is_full(), desk.store.reads) == (True, 0)
    await desk.visit.hear_named("reply")
    assert seqs((await desk.visit.hear_named("subscribe"))["messages"]) == [1, 2]
    assert desk.store.reads == 1


async def test_what_was_missed_is_looked_up_when_the_data_plane_takes_it(desk: Desk) -> None:
    made = [desk.news(n) for n in range(1, 6)]
    logs = desk.core.hub.logs
    # Not silent on however slow a machine: otherwise the follower would read number 5 itself.
    heard_at = desk.core.clock() + 3600
    logs.heard(log_of(made[0]), 0, 0, sent_ms=int(desk.now * 1000), now=heard_at)
    begin = desk.core.hub.position(desk.now)
    for one in made[:4]:
        desk.core.hub.offer(one, desk.now)
    await desk.store.write(made)
    for _ in range(2):
        desk.plane.send(commands.reply(READER, bytes(12 << 20)))
    verb = {"action": "subscribe", "topic": "news.breaking", "position": begin}
    desk.plane.room.answer(READER, b"", json.dumps(verb).encode())
    await desk.visit.hear_named("reply")
    assert desk.plane.room.is_full()
    assert desk.store.resumes == 0
    desk.core.hub.offer(made[4], desk.now)
    await desk.visit.hear_named("reply")
    answer = await desk.visit.hear_named("subscribe")
    assert seqs(answer["messages"]) == [1, 2, 3, 4, 5]
    assert json.loads(answer["push"])["recovered"]
