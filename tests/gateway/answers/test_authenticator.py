"""The authenticator alone: the data that its decisions need, and its behaviour without them."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from envelopes import envelope
from gateways import until
from signing import AUDIENCE, ISSUER, ed25519, jwk, jwks, keys_file, token

from gateway.answers.access import ANONYMOUS
from gateway.answers.authenticator import Authenticator, LoginResult
from gateway.process.settings import GatewaySettings, TokenSettings
from gateway.process.tasks import Tasks
from newsfabric.closing import ErrorCode
from newsfabric.errors import ConfigError, StoreUnavailable
from newsfabric.messages.control import revocation
from newsfabric.messages.envelope import Envelope, id_of
from newsfabric.store.memory import MemoryStore
from newsfabric.store.rules import clock_ms
from newsfabric.topics import REVOKED, TopicTable


class RevocationStore(MemoryStore):
    """A store that can be away."""

    def __init__(self) -> None:
        super().__init__(TopicTable([]))
        self.away = False
        self.broken: Exception | None = None

    async def history(self, *args: Any, **kwargs: Any) -> list[Envelope]:
        if self.away:
            raise StoreUnavailable("away")
        if self.broken is not None:
            raise self.broken
        return await super().history(*args, **kwargs)


def revoked(number: int, user: str, at_ms: int) -> Envelope:
    made = envelope(number, topic=REVOKED, body=revocation(user, at_ms).body)
    fields = {"id": id_of(at_ms, made.identity), "published_ms": at_ms}
    return Envelope(**{name: getattr(made, name) for name in made.__slots__} | fields)


@contextlib.asynccontextmanager
async def authenticator_with(
    store: RevocationStore, evicted: list[tuple[str, int]] | None = None, **tokens: Any
) -> AsyncIterator[Authenticator]:
    def evict(users: Sequence[tuple[str, int]]) -> None:
        if evicted is not None:
            evicted.extend(users)

    settings = GatewaySettings(
        name="b",
        region="oregon",
        tokens=TokenSettings(**{"audience": AUDIENCE, "issuer": ISSUER} | tokens),
    )
    tasks = Tasks()
    authenticator = Authenticator(settings, TopicTable([]), store, spawn=tasks.spawn, evict=evict)
    try:
        yield authenticator
    finally:
        await tasks.close()
        await authenticator.close()


def decided(authenticator: Authenticator, **claims: Any) -> LoginResult:
    result = authenticator.decide(ANONYMOUS, token(**claims))
    assert result is not None
    return result


async def test_it_begins_with_all_who_were_revoked_however_many(tmp_path: Path) -> None:
    store, evicted, now_ms = RevocationStore(), list[tuple[str, int]](), clock_ms()
    await store.write([revoked(n, f"u{n}", now_ms - 5_000 + n) for n in range(2_500)])
    await store.write([revoked(3_000, "u7", now_ms)])
    async with authenticator_with(store, evicted, keys=keys_file(tmp_path)) as authenticator:
        await authenticator.start()
        assert authenticator.ready
        assert len(authenticator.revocations) == 2_500
        assert dict(authenticator.revocations)["u7"] == now_ms
        assert dict(evicted) == dict(authenticator.revocations)


async def test_while_the_store_is_away_nobody_is_let_in_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("gateway.answers.authenticator._START_SECONDS", 0.05)
    store = RevocationStore()
    await store.write([revoked(1, "42", clock_ms())])
    store.away = True
    async with authenticator_with(store, keys=keys_file(tmp_path)) as authenticator:
        await authenticator.start()
        assert not authenticator.ready
        result = decided(authenticator)
        assert result.refusal is not None
        assert (result.refusal.code, result.refusal.temporary) == (ErrorCode.INTERNAL, True)
        assert result.auth == ANONYMOUS
        store.away = False
        await until(lambda: authenticator.ready)
        assert decided(authenticator, issued=clock_ms() / 1000 - 60).refusal is not None
        assert decided(authenticator, user="7").refusal is None
    assert len([r for r in caplog.records if "can't be read" in r.getMessage()]) == 1


async def test_an_error_of_our_own_is_logged_and_the_revocations_are_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expect_error_log: Callable[[str], None]
) -> None:
    expect_error_log("a row that nobody can read")
    monkeypatch.setattr("gateway.answers.authenticator._START_SECONDS", 0.05)
    store = RevocationStore()
    store.broken = ValueError("a row that nobody can read")
    async with authenticator_with(store, keys=keys_file(tmp_path)) as authenticator:
        await authenticator.start()
        assert not authenticator.ready
        store.broken = None
        await until(lambda: authenticator.ready)


async def test_without_keys_it_is_ready_and_lets_nobody_in() -> None:
    async with authenticator_with(RevocationStore()) as authenticator:
        await authenticator.start()
        assert authenticator.ready
        result = decided(authenticator)
        assert result.refusal is not None
        assert result.refusal.code == ErrorCode.UNAUTHORIZED


async def test_a_key_that_isnt_known_is_looked_for_once(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_bytes(jwks(jwk(ed25519("first"), "first")))
    async with authenticator_with(
        RevocationStore(), keys=str(path), keys_again=3600.0
    ) as authenticator:
        await authenticator.start()
        path.write_bytes(jwks(jwk(ed25519("second"), "second")))
        verb = token(key=ed25519("second"), kid="second")
        assert authenticator.decide(ANONYMOUS, verb) is None
        # The file was read just now.
        assert (await authenticator.decide_later(ANONYMOUS, verb)).refusal is not None


@pytest.mark.parametrize("kid", [None, "second"])
@pytest.mark.parametrize("keep", [False, True], ids=["replaced", "extended"])
async def test_a_file_of_keys_without_ids_is_read_again_too(
    tmp_path: Path, kid: str | None, keep: bool
) -> None:
    old, new = ed25519("old"), ed25519("new")
    path = keys_file(tmp_path, old)
    async with authenticator_with(RevocationStore(), keys=path, keys_again=0.0) as authenticator:
        await authenticator.start()
        keys_file(tmp_path, *([old] if keep else []), new)
        result = await authenticator.decide_now_or_later(ANONYMOUS, token(key=new, kid=kid))
        assert result.refusal is None


async def test_strangers_tokens_dont_have_the_keys_read_more_often(tmp_path: Path) -> None:
    old, new = ed25519("old"), ed25519("new")
    path = keys_file(tmp_path, old)
    async with authenticator_with(RevocationStore(), keys=path, keys_again=3600.0) as authenticator:
        await authenticator.start()
        keys_file(tmp_path, new)
        # The keys were read just now.
        for one in (ed25519("forged"), new):
            result = await authenticator.decide_now_or_later(ANONYMOUS, token(key=one))
            assert result.refusal is not None
        result = await authenticator.decide_now_or_later(ANONYMOUS, token(key=old))
        assert result.refusal is None


async def test_bad_tokens_are_logged_seldom_and_without_the_token(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with authenticator_with(RevocationStore(), keys=keys_file(tmp_path)) as authenticator:
        await authenticator.start()
        bad = [token(user=f"u{n}", key=ed25519("forged")) for n in range(100)]
        for one in bad:
            await authenticator.decide_now_or_later(ANONYMOUS, one)
    lines = [r.getMessage() for r in caplog.records if "bad tokens" in r.getMessage()]
    assert len(lines) == 7
    assert lines[-1] == "64 bad tokens so far, this one: signed with a key that isn't known here"
    assert not any(one in caplog.text or one.split(".")[2] in caplog.text for one in bad)


@pytest.mark.parametrize("cookie", ["", "a b", "a;b", "a=b", "a\n", "x" * 65, "é"])
def test_a_cookie_that_cant_be_one_is_an_error_at_the_start(cookie: str) -> None:
    with pytest.raises(ConfigError, match="cookie"):
        TokenSettings(keys="keys.pem", cookie=cookie)


def test_a_cookie_without_keys_is_an_error_at_the_start() -> None:
    with pytest.raises(ConfigError, match="--token-keys"):
        TokenSettings(cookie="session")


async def test_keys_that_arent_there_are_an_error_at_the_start(tmp_path: Path) -> None:
    async with authenticator_with(
        RevocationStore(), keys=str(tmp_path / "missing.pem")
    ) as authenticator:
        with pytest.raises(ConfigError, match=r"missing\.pem"):
            await authenticator.start()
