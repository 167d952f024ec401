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
from native_rig import FORTY_TWO, OTHER, THIRD, NativeRig, attached, past, seqs
from signing import token

from gateway.answers.access import AuthState, decode_auth, encode_auth
from gateway.native import commands
from gateway.process import measures
from gateway.wire.position import log_of


async def test_an_auth_state_says_who_speaks(rig: NativeRig) -> None:
    auth = encode_auth(FORTY_TWO)
    fields = await rig.subscribed(topic="user.42", auth=auth)
    push = json.loads(fields["push"])
    assert (fields["connections"], push["topic"], push["recovered"]) == (READER, "user.42", True)
    assert (await rig.replied(action="subscribe", topic="user.7", auth=auth))["code"] == 103


async def test_the_same_text_is_answered_by_who_says_it(rig: NativeRig) -> None:
    verb = {"action": "subscribe", "topic": "rig.plans"}
    auth = encode_auth(FORTY_TWO)
    for _ in range(2):
        assert (await rig.replied(**verb))["code"] == 101
        assert (await rig.command_for(**verb, auth=auth)).name == "subscribe"
    assert len(rig.texts_read) == 1


async def test_with_an_auth_state_that_another_release_made_one_is_a_stranger(
    rig: NativeRig,
) -> None:
    verb = {"action": "subscribe", "topic": "user.42"}
    assert (await rig.replied(**verb, auth=b"of another release"))["code"] == 101
    fields = await rig.subscribed(topic="news.a", auth=b"of another release")
    assert fields["topic"] == ("news.a", 2)


async def test_who_logs_in_is_given_an_auth_state(rig: NativeRig) -> None:
    auth = encode_auth(AuthState(None, 1))
    command = await rig.command_for(action="login", token=token("42"), ref="r", auth=auth)
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
    fields = await rig.subscribed(topic="user.42", auth=command.fields["auth"])
    assert fields["topic"] == ("user.42", 2)


async def test_who_logs_in_with_the_same_token_in_the_same_moment_is_decided_on_alone(
    rig: NativeRig,
) -> None:
    good = measures.TOKENS.labels("good")
    before = value(good)
    first = await rig.command_for(action="login", token=token("42"), by=READER + OTHER)
    second = await rig.visit.hear_named("auth")
    assert (first.fields["connections"], second["connections"]) == (READER, OTHER)
    assert (first.fields["user"], second["user"]) == ("42", "42")
    assert value(good) == before + 2


async def test_bad_tokens_are_counted_in_the_auth_state_and_one_too_many_is_the_end(
    rig: NativeRig,
) -> None:
    first = await rig.command_for(action="login", token="x")
    assert (first.name, first.fields["user"]) == ("auth", "")
    assert json.loads(first.fields["push"])["code"] == 101
    assert decode_auth(first.fields["auth"]) == AuthState(None, 1)
    second = await rig.command_for(action="login", token="x", auth=first.fields["auth"])
    assert decode_auth(second.fields["auth"]) == AuthState(None, 2)
    closed = await rig.visit.hear_named("close")
    assert (closed["connections"], closed["reason"]) == (READER, "invalid_token")


# Attachments, and room.


async def test_answers_that_come_after_their_attachment_arent_sent(
    rig: NativeRig, tmp_path: Path
) -> None:
    await rig.store.write(past(1, 2))
    rig.store.released.clear()
    text = b'{"action":"subscribe","topic":"news.a","rewind":2}'
    await rig.send_text(text)
    await rig.send_text(text, by=OTHER)
    await rig.send_text(b'{"action":"history","topic":"news.a"}', by=THIRD)
    assert await rig.replied(action="ping") == {"type": "pong"}
    await rig.leaves()
    async with fake_dataplane(tmp_path / "control") as fake:
        rig.visit = await attached(fake, rig.plane, attachment=2)
        rig.store.released.set()
        # The topic's past is worth reading for any reader.
        await until(lambda: rig.core.hub.memory("news.a").seeded)
        assert await rig.replied(action="ping") == {"type": "pong"}
        # The data plane sends the readers' verbs again.
        await rig.send_text(text)
        answer = await rig.visit.hear_named("subscribe")
        assert (answer["batch"], seqs(answer["messages"])) == (0, [1, 2])
        assert rig.store.reads == 1


async def test_what_one_attachment_had_is_sent_anew_to_the_next(
    rig: NativeRig, tmp_path: Path
) -> None:
    await rig.store.write(past(1, 2))
    verb = {"topic": "news.a", "rewind": 2}
    await rig.subscribed(**verb)
    assert (await rig.command_for(action="subscribe", **verb)).fields["number"] == 1
    await rig.visit.hear_named("subscribe")
    await rig.leaves()
    async with fake_dataplane(tmp_path / "control") as fake:
        rig.visit = await attached(fake, rig.plane, attachment=2)
        first = await rig.subscribed(**verb)
        assert (first["batch"], seqs(first["messages"])) == (0, [1, 2])
        batch = await rig.command_for(action="subscribe", **verb)
        assert (batch.name, batch.fields["number"]) == ("batch", 2)
        assert (await rig.visit.hear_named("subscribe"))["batch"] == 2


async def test_nothing_is_read_for_a_reader_until_its_data_plane_takes_what_there_is(
    rig: NativeRig,
) -> None:
    await rig.store.write(past(1, 2))
    huge = commands.reply(READER, bytes(12 << 20))
    for _ in range(2):
        rig.plane.send(huge)
    assert rig.plane.room.is_full()
    rig.plane.room.answer(READER, b"", b'{"action":"subscribe","topic":"news.a","rewind":2}')
    await rig.visit.hear_named("reply")
    # As much as before still waits.
    assert (rig.plane.room.is_full(), rig.store.reads) == (True, 0)
    await rig.visit.hear_named("reply")
    assert seqs((await rig.visit.hear_named("subscribe"))["messages"]) == [1, 2]
    assert rig.store.reads == 1


async def test_what_was_missed_is_looked_up_when_the_data_plane_takes_it(rig: NativeRig) -> None:
    made = [rig.news(n) for n in range(1, 6)]
    logs = rig.core.hub.logs
    # Not silent on however slow a machine: otherwise the follower would read number 5 itself.
    heard_at = rig.core.clock() + 3600
    logs.note_report(log_of(made[0]), 0, 0, sent_ms=int(rig.now * 1000), now=heard_at)
    begin = rig.core.hub.position(rig.now)
    for one in made[:4]:
        rig.core.hub.offer(one, rig.now)
    await rig.store.write(made)
    for _ in range(2):
        rig.plane.send(commands.reply(READER, bytes(12 << 20)))
    verb = {"action": "subscribe", "topic": "news.breaking", "position": begin}
    rig.plane.room.answer(READER, b"", json.dumps(verb).encode())
    await rig.visit.hear_named("reply")
    assert rig.plane.room.is_full()
    assert rig.store.resumes == 0
    rig.core.hub.offer(made[4], rig.now)
    await rig.visit.hear_named("reply")
    answer = await rig.visit.hear_named("subscribe")
    assert seqs(answer["messages"]) == [1, 2, 3, 4, 5]
    assert json.loads(answer["push"])["recovered"]
