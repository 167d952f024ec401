"""Readers with a login: the topics they may read, over each transport and by each verb."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import websockets
from gateways import Box, Reader, Response, opened_box, until
from signing import AUDIENCE, ISSUER, ed25519, jwk, jwks, keys_file, token
from sockjs_sessions import sockjs_session

from gateway.process.settings import TokenSettings
from newsfabric.messages.control import revocation
from newsfabric.messages.envelope import Envelope
from newsfabric.store.memory import MemoryStore
from newsfabric.topics import REVOKED, TopicPolicy, TopicTable

TABLE = TopicTable(
    [
        TopicPolicy(pattern="news.*", keep=10),
        TopicPolicy(pattern="user.*", topic_class="gold", access="owner", keep=10),
        TopicPolicy(pattern="desk.#", access="registered"),
        TopicPolicy(pattern="live.#", access="granted"),
    ]
)
PAGE = "https://www.example.org"


def tokens(folder: Path, **more: Any) -> TokenSettings:
    fields = {"keys": keys_file(folder), "audience": AUDIENCE, "issuer": ISSUER, "leeway": 0.0}
    return TokenSettings(**{**fields, **more})


@pytest.fixture
async def box(engine: str, tmp_path: Path) -> AsyncIterator[Box]:
    rules = tokens(tmp_path, cookie="session")
    async with opened_box(engine, table=TABLE, tokens=rules, origins=(PAGE,)) as box:
        yield box


async def logged_in(reader: Reader, user: str = "42", **claims: Any) -> dict[str, Any]:
    push = await reader.answer_to(action="login", token=token(user, **claims), ref=1)
    assert push["type"] == "logged_in", push
    return push


async def code_of(reader: Reader, **verb: Any) -> int | None:
    """Return the code of the error that answers ``verb``; None if it is obeyed."""
    push = await reader.answer_to(**verb)
    return push["code"] if push["type"] == "error" else None


async def test_a_reader_logs_in_and_learns_who_it_is_and_until_when(box: Box) -> None:
    async with box.reader() as reader:
        push = await reader.answer_to(action="login", token=token("42", exp=4_000_000_000), ref="r")
        day = 86400_000
        assert push.pop("expires_at") == pytest.approx(_now_ms() + 30 * day, abs=5_000)
        assert push == {"type": "logged_in", "ref": "r", "user": "42"}


async def test_whoever_owns_a_topic_gets_its_messages_on_every_device(box: Box) -> None:
    async with box.reader() as phone, box.reader() as page:
        for device in (phone, page):
            await logged_in(device)
            await device.subscribe("user.42")
        box.publish("user.42", {"n": 1})
        assert await phone.hear_bodies(1) == await page.hear_bodies(1) == [{"n": 1}]


async def test_access_decides_who_may_read_what(box: Box) -> None:
    async with box.reader() as stranger, box.reader() as reader:
        for topic in ("user.42", "desk.plans", "live.election"):
            assert await code_of(stranger, action="subscribe", topic=topic) == 101
            assert await code_of(stranger, action="history", topic=topic) == 101
        await stranger.subscribe("news.breaking")
        await logged_in(reader, topics=["live.election", "user.#", "#"][:1])
        for topic in ("news.breaking", "user.42", "desk.plans", "live.election"):
            await reader.subscribe(topic)
            assert await code_of(reader, action="history", topic=topic) is None
        assert await code_of(reader, action="subscribe", topic="live.sports") == 103
        assert await code_of(reader, action="history", topic="live.sports") == 103


@pytest.mark.parametrize("transport", ["websocket", "xhr", "xhr_streaming", "eventsource"])
async def test_a_reader_logs_in_over_sockjs(box: Box, transport: str) -> None:
    await box.was_past([box.envelope("user.42", {"n": 1})])
    async with sockjs_session(box, transport) as session:
        await session.send_verbs(
            {"action": "login", "token": token("42")},
            {"action": "subscribe", "topic": "user.42", "rewind": 5},
        )
        pushes = await session.hear(3)
    assert [p["type"] for p in pushes] == ["logged_in", "subscribed", "message"]


async def test_verbs_that_follow_a_login_at_once_are_obeyed_after_it(box: Box) -> None:
    async with box.reader() as reader:
        await reader.send_verb(action="login", token=token())
        await reader.send_verb(action="subscribe", topic="user.42")
        assert [(await reader.hear())["type"] for _ in range(2)] == ["logged_in", "subscribed"]


@pytest.mark.parametrize(
    ("make_bad", "code"),
    [
        (lambda: token(key=ed25519("forged")), 101),
        (lambda: token(ttl=-1.0), 109),
        (lambda: token(aud="others"), 101),
        (lambda: token(iss="https://evil.example.org"), 101),
        (lambda: token(algorithm="none"), 101),
        (lambda: token(algorithm="none", key=b""), 101),
        (lambda: token(kid="unknown", key=ed25519("forged")), 101),
        (lambda: token(padding="x" * 8192), 101),
        (lambda: token(nbf=4_000_000_000), 101),
        (lambda: "", 101),
        (lambda: "not a token", 101),
    ],
)
async def test_a_bad_token_is_an_error_and_nothing_changes(
    box: Box, make_bad: Callable[[], str], code: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    # Made now, because the tests run long after they are collected.
    bad = make_bad()
    async with box.reader("news.breaking") as reader:
        push = await reader.answer_to(action="login", token=bad, ref=7)
        assert (push["type"], push["code"], push["ref"]) == ("error", code, 7)
        assert push["temporary"] is False
        assert await code_of(reader, action="subscribe", topic="desk.plans") == 101
        await logged_in(reader)
        assert await code_of(reader, action="refresh", token=bad) == code
        assert await code_of(reader, action="subscribe", topic="user.42") is None
        box.publish("news.breaking", {"n": 1})
        assert await reader.hear_bodies(1) == [{"n": 1}]
    if len(bad) > 20:
        assert not any(bad[-40:] in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize("bad", [None, 7, [], {}, True])
async def test_a_token_that_is_no_text_is_a_bad_request(box: Box, bad: Any) -> None:
    async with box.reader() as reader:
        assert await code_of(reader, action="login", token=bad) == 107
        assert await code_of(reader, action="refresh", token=bad) == 107


async def test_the_fifth_bad_token_ends_the_connection(box: Box) -> None:
    async with box.reader() as reader:
        for n in range(4):
            assert await code_of(reader, action="login", token="x", ref=n) == 101
        await logged_in(reader)
        await reader.send_verb(action="refresh", token=token(ttl=-9.0))
        code, pushes = await reader.hear_close()
        assert code == 4001
        assert [(p["type"], p["code"]) for p in pushes] == [("error", 109), ("disconnect", 4001)]
        assert pushes[1]["reconnect"] is False


async def test_somebody_else_cant_log_in_on_the_same_connection(box: Box) -> None:
    async with box.reader() as reader:
        await logged_in(reader, "42")
        for action in ("login", "refresh"):
            push = await reader.answer_to(action=action, token=token("7"))
            assert (push["code"], push["reason"]) == (101, "logged in as somebody else already")
        assert await code_of(reader, action="subscribe", topic="user.7") == 103
        await reader.subscribe("user.42")


async def test_refresh_goes_on_as_the_same_reader(box: Box) -> None:
    async with box.reader() as reader:
        assert await code_of(reader, action="refresh", token=token()) == 101
        first = await logged_in(reader, ttl=100.0)
        push = await reader.answer_to(action="refresh", token=token(ttl=1000.0), ref=2)
        assert (push["type"], push["ref"], push["user"]) == ("refreshed", 2, "42")
        assert push["expires_at"] == pytest.approx(first["expires_at"] + 900_000, abs=5_000)


async def test_a_token_that_runs_out_ends_the_connection(box: Box) -> None:
    async with box.reader("news.breaking") as reader:
        await logged_in(reader, ttl=0.3)
        code, pushes = await reader.hear_close()
        assert code == 4202
        assert [p["code"] for p in pushes] == [4202]
        assert pushes[0]["reconnect"] is True


async def test_a_token_that_is_refreshed_in_time_ends_nothing(box: Box) -> None:
    async with box.reader() as reader, box.reader() as other:
        await logged_in(reader, ttl=0.4)
        await logged_in(other, ttl=0.4)
        assert (await reader.answer_to(action="refresh", token=token()))["type"] == "refreshed"
        assert (await other.hear_close())[0] == 4202
        await reader.is_up_to_date()


async def test_the_token_may_be_the_second_subprotocol(box: Box) -> None:
    async with websockets.connect(
        f"ws://{box.host}/websocket",
        subprotocols=[websockets.Subprotocol(name) for name in ("newsfabric", token("42"))],
    ) as connection:
        reader = Reader(connection)
        assert connection.subprotocol == "newsfabric"
        push = await reader.hear()
        assert (push["type"], push.get("ref"), push["user"]) == ("logged_in", None, "42")
        await reader.subscribe("user.42")


async def test_a_subprotocol_alone_is_only_answered(box: Box) -> None:
    for offer in ("newsfabric", "other, newsfabric"):
        async with box.opened() as raw:
            head = await raw.upgrade(Sec_WebSocket_Protocol=offer)
            assert head.headers["sec-websocket-protocol"] == "newsfabric"
            raw.send_verb(action="ping")
            assert json.loads((await raw.read_frame())[1]) == {"type": "pong"}
    async with box.opened() as raw:
        head = await raw.upgrade(Sec_WebSocket_Protocol=f"other, {token()}")
        assert "sec-websocket-protocol" not in head.headers
        raw.send_verb(action="ping")
        assert json.loads((await raw.read_frame())[1]) == {"type": "pong"}


async def test_a_bad_token_in_the_subprotocol_is_an_error_push(box: Box) -> None:
    for bad in ("nonsense", 'quo"te', token(ttl=-1.0)):
        async with box.opened() as raw:
            head = await raw.upgrade(Sec_WebSocket_Protocol=f"newsfabric, {bad}")
            assert head.status == 101
            push = json.loads((await raw.read_frame())[1])
            assert (push["type"], push.get("ref")) == ("error", None)
            assert push["code"] == (109 if "." in bad else 101)


async def test_the_cookie_of_our_own_page_logs_in(box: Box) -> None:
    # The last page has the host that raw requests name.
    for page in (PAGE, PAGE.upper(), "http://127.0.0.1"):
        async with box.opened() as raw:
            await raw.upgrade(Origin=page, Cookie=f"theme=dark; session={token('42')}; x=y")
            push = json.loads((await raw.read_frame())[1])
            assert (push["type"], push["user"]) == ("logged_in", "42")


@pytest.mark.parametrize("path", ["/websocket", "/sockjs/0/s/websocket"])
async def test_a_cookie_without_a_page_of_ours_is_nobodys(box: Box, path: str) -> None:
    async with box.opened() as raw:
        assert (await raw.upgrade(path, Cookie=f"session={token()}")).status == 101
        verb = json.dumps({"action": "ping"})
        raw.send_frame(0x81, (json.dumps([verb]) if "sockjs" in path else verb).encode())
        seen = (await raw.read_frame())[1]
        if seen == b"o":
            seen = (await raw.read_frame())[1]
        assert b"pong" in seen


async def test_event_streams_and_history_take_a_bearer(box: Box) -> None:
    await box.was_past([box.envelope("user.42", {"n": 1})])
    good = {"Authorization": f"Bearer {token('42')}"}
    async with box.opened() as raw:
        raw.send_request("GET", "/events?topic=user.42&rewind=5", **good)
        assert Response.of(await raw.read_until(b"\r\n\r\n")).status == 200
        while (event := await raw.read_until(b"\n\n")).find(b'"n"') < 0:
            assert b"error" not in event
    answer = await box.request("GET", "/history?topic=user.42", **good)
    assert answer.status == 200
    # The scheme's name has no case (RFC 9110 section 11.1).
    lower = {"Authorization": f"bearer {token('42')}"}
    assert (await box.request("GET", "/history?topic=user.42", **lower)).status == 200


@pytest.mark.parametrize("path", ["/events?topic=news.breaking", "/history?topic=news.breaking"])
async def test_a_bad_bearer_is_401_whatever_is_asked_for(box: Box, path: str) -> None:
    for bad, code in ((token(ttl=-1.0), 109), ("x", 101), (token(algorithm="none"), 101)):
        answer = await box.request("GET", path, Authorization=f"Bearer {bad}")
        assert (answer.status, json.loads(answer.body)["code"]) == (401, code)
        assert answer.headers["www-authenticate"] == "Bearer"


async def test_an_event_stream_ends_when_its_token_runs_out(box: Box) -> None:
    async with box.opened() as raw:
        raw.send_request(
            "GET", "/events?topic=user.42", Authorization=f"Bearer {token('42', ttl=0.3)}"
        )
        events = (await raw.read_all()).decode()
    assert '"code":4202' in events
    assert events.index("subscribed") < events.index("disconnect")


async def test_event_streams_take_the_cookie_of_our_own_pages(box: Box) -> None:
    cookie = {"Cookie": f"session={token('42')}"}
    path = "/history?topic=user.42"
    listed = await box.request("GET", path, Origin=PAGE, **cookie)
    assert listed.status == 200
    assert listed.headers["access-control-allow-credentials"] == "true"
    assert listed.headers["access-control-allow-origin"] == PAGE
    same = {"Sec-Fetch-Site": "same-origin"}
    assert (await box.request("GET", path, **same, **cookie)).status == 200
    for page in ({}, {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "none"}):
        assert (await box.request("GET", path, **page, **cookie)).status == 401


async def test_a_page_of_any_origin_doesnt_get_a_cookie_counted(
    engine: str, tmp_path: Path
) -> None:
    rules = tokens(tmp_path, cookie="session")
    async with opened_box(engine, table=TABLE, tokens=rules) as box:
        answer = await box.request(
            "GET", "/history?topic=user.42", Origin=PAGE, Cookie=f"session={token('42')}"
        )
        assert answer.status == 401
        assert "access-control-allow-credentials" not in answer.headers
        async with box.opened() as raw:
            await raw.upgrade(Origin=PAGE, Cookie=f"session={token('42')}")
            raw.send_verb(action="ping")
            assert b"pong" in (await raw.read_frame())[1]


async def test_a_sockjs_session_may_begin_with_a_bearer_or_cookie(box: Box) -> None:
    for n, headers in enumerate(
        ({"Authorization": f"Bearer {token()}"}, {"Cookie": f"session={token()}", "Origin": PAGE})
    ):
        base = f"/sockjs/0/session-{n}/xhr"
        assert (await box.request("POST", base, **headers)).body == b"o\n"
        pushes = json.loads((await box.request("POST", base, **headers)).body[1:])
        assert [json.loads(p)["type"] for p in pushes] == ["logged_in"]


PING = json.dumps([json.dumps({"action": "ping"})]).encode()


async def test_a_sockjs_session_that_began_with_a_token_is_that_users_alone(box: Box) -> None:
    session, cookie = "/sockjs/0/known", {"Origin": PAGE}
    own = {**cookie, "Cookie": f"session={token('42')}"}
    assert (await box.request("POST", f"{session}/xhr", **own)).body == b"o\n"
    assert b"logged_in" in (await box.request("POST", f"{session}/xhr", **own)).body
    others = (
        {},
        cookie,
        {**cookie, "Cookie": f"session={token('43')}"},
        {**cookie, "Cookie": f"session={token('42', ttl=-1.0)}"},
        {"Authorization": f"Bearer {token('42', algorithm='none')}"},
    )
    for other in others:
        for transport in ("xhr", "xhr_streaming", "xhr_send"):
            answer = await box.request("POST", f"{session}/{transport}", PING, **other)
            assert (answer.status, answer.body) == (404, b"no such session"), (transport, other)
        assert (await box.request("GET", f"{session}/eventsource", **other)).status == 404
    # The user's next token replaces the one before, which then counts like any other of hers.
    renewed = {**cookie, "Cookie": f"session={token('42', ttl=77.0)}"}
    for mine in (own, renewed, {"Authorization": f"Bearer {token('42', ttl=78.0)}"}, renewed):
        assert (await box.request("POST", f"{session}/xhr_send", PING, **mine)).status == 204
        assert b"pong" in (await box.request("POST", f"{session}/xhr", **mine)).body


async def test_a_session_whose_token_is_no_good_goes_on_with_that_alone(box: Box) -> None:
    session = "/sockjs/0/refused"
    bad = {"Authorization": f"Bearer {token('42', ttl=-1.0)}"}
    assert (await box.request("POST", f"{session}/xhr", **bad)).body == b"o\n"
    assert b"error" in (await box.request("POST", f"{session}/xhr", **bad)).body
    good = {"Authorization": f"Bearer {token('42')}"}
    assert (await box.request("POST", f"{session}/xhr_send", PING, **good)).status == 404
    assert (await box.request("POST", f"{session}/xhr_send", PING, **bad)).status == 204


async def test_a_revoked_user_is_sent_away_at_once_and_its_tokens_are_no_good(box: Box) -> None:
    async with box.reader() as phone, box.reader() as page, box.reader() as other:
        old = token("42")
        await logged_in(phone)
        await page.answer_to(action="login", token=old)
        await logged_in(other, "7")
        _revoke(box, "42")
        for device in (phone, page):
            code, pushes = await device.hear_close()
            assert code == 4001
            assert pushes[-1]["reconnect"] is False
        await other.is_up_to_date()
        assert await code_of(other, action="login", token=old) == 101
    async with box.reader() as again:
        push = await again.answer_to(action="login", token=old)
        assert (push["code"], push["reason"]) == (101, "the token was revoked")
        # A user that is let in again gets a new token.
        later = _now_ms() / 1000 + 2
        assert await code_of(again, action="login", token=token("42", iat=later)) == 101
    answer = await box.request("GET", "/history?topic=user.42", Authorization=f"Bearer {old}")
    assert answer.status == 401


async def test_a_token_from_after_the_revocation_is_good(box: Box) -> None:
    _revoke(box, "42", at_ms=_now_ms() - 60_000)
    await until(lambda: len(box.gateway.core.authenticator.revocations))
    async with box.reader() as reader:
        assert await code_of(reader, action="login", token=token("42", iat=_now() - 90)) == 101
        await logged_in(reader)
        _revoke(box, "42", at_ms=_now_ms() - 30_000)
        _revoke(box, "7")
        await until(lambda: len(box.gateway.core.authenticator.revocations) == 2)
        await reader.is_up_to_date()


async def test_an_event_stream_of_a_revoked_user_ends(box: Box) -> None:
    async with box.opened() as raw:
        raw.send_request("GET", "/events?topic=user.42", Authorization=f"Bearer {token('42')}")
        await raw.read_until(b"subscribed")
        _revoke(box, "42")
        assert b'"code":4001' in await raw.read_all()


async def test_a_gateway_that_starts_knows_who_was_revoked(engine: str, tmp_path: Path) -> None:
    store = MemoryStore(TABLE)
    async with opened_box(engine, table=TABLE, store=store, tokens=tokens(tmp_path)) as box:
        made = [_revocation(box, f"u{n}") for n in range(3)] + [_revocation(box, "42")]
    store = MemoryStore(TABLE)
    await store.write(made)
    async with opened_box(engine, table=TABLE, store=store, tokens=tokens(tmp_path)) as box:
        assert len(box.gateway.core.authenticator.revocations) == 4
        async with box.reader() as reader:
            before = token("42", iat=_now() - 30)
            assert await code_of(reader, action="login", token=before) == 101
            await logged_in(reader, "7")


async def test_what_a_reader_cant_subscribe_to_are_revocations(box: Box) -> None:
    async with box.reader() as reader:
        await logged_in(reader, topics=["#"])
        assert await code_of(reader, action="subscribe", topic=REVOKED) == 102
        _revoke(box, "somebody")
        await until(lambda: len(box.gateway.core.authenticator.revocations))
        await reader.is_up_to_date()


async def test_without_keys_nobody_logs_in(engine: str) -> None:
    async with opened_box(engine, table=TABLE) as box, box.reader() as reader:
        push = await reader.answer_to(action="login", token=token())
        assert (push["code"], push["reason"]) == (101, "logins aren't set up here")
        for _ in range(6):
            assert await code_of(reader, action="login", token=token()) == 101


async def test_a_new_key_of_the_issuers_is_found_when_a_token_names_it(
    engine: str, tmp_path: Path
) -> None:
    path = tmp_path / "keys.json"
    path.write_bytes(jwks(jwk(ed25519("first"), "first")))
    rules = tokens(tmp_path, keys=str(path), keys_again=0.0)
    async with opened_box(engine, table=TABLE, tokens=rules) as box, box.reader() as reader:
        newer = {"key": ed25519("second"), "kid": "second"}
        assert await code_of(reader, action="login", token=token(**newer)) == 101
        path.write_bytes(jwks(jwk(ed25519("second"), "second")))
        # Verbs sent meanwhile wait for their turn.
        await reader.send_verb(action="login", token=token(**newer))
        await reader.send_verb(action="subscribe", topic="user.42")
        assert [(await reader.hear())["type"] for _ in range(2)] == ["logged_in", "subscribed"]


async def test_logins_are_counted_by_what_came_of_them(box: Box) -> None:
    sample = 'newsfabric_gateway_tokens_total{outcome="%s"}'
    before = {what: await box.metric(sample % what) for what in ("good", "expired", "unknown_key")}
    async with box.reader() as reader:
        await reader.answer_to(action="login", token=token(ttl=-1.0))
        await reader.answer_to(action="login", token=token(key=ed25519("forged")))
        await logged_in(reader)
    after = {what: await box.metric(sample % what) for what in before}
    assert after == {what: count + 1 for what, count in before.items()}


def _now() -> float:
    return _now_ms() / 1000


def _now_ms() -> int:
    return int(time.time() * 1000)


def _revocation(box: Box, user: str, at_ms: int | None = None) -> Envelope:
    message = revocation(user, _now_ms() if at_ms is None else at_ms)
    return box.envelope(REVOKED, message.body)


def _revoke(box: Box, user: str, at_ms: int | None = None) -> None:
    box.send_envelope(_revocation(box, user, at_ms))
