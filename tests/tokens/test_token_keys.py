"""Keys that stay fresh, also while their source fails."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from signing import ed25519, jwk, jwks, keys_file, public_pem

from newsfabric.errors import ConfigError
from newsfabric.tokens.token_keys import MAX_BYTES, TokenKeys

FIRST = jwks(jwk(ed25519("first"), "first"))
BOTH = jwks(jwk(ed25519("first"), "first"), jwk(ed25519("second"), "second"))


class Issuer:
    """An HTTP server that replies to each request with its ``status``, ``headers`` and ``body``."""

    def __init__(self) -> None:
        self.asked = 0
        self.body = FIRST
        self.status = "200 OK"
        self.headers = ""
        self.before: Callable[[], Awaitable[object]] | None = None
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            self.asked += 1
            if self.before is not None:
                await self.before()
            head = f"HTTP/1.1 {self.status}\r\nContent-Length: {len(self.body)}\r\n{self.headers}"
            writer.write(head.encode() + b"\r\n" + self.body)
            await writer.drain()
        writer.close()


@pytest.fixture
async def issuer() -> AsyncIterator[Issuer]:
    made = Issuer()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/keys.json"
    async with server:
        yield made


@contextlib.asynccontextmanager
async def keys_of(source: str, *, again: float = 0.0) -> AsyncIterator[TokenKeys]:
    keys = TokenKeys(source, again=again)
    try:
        await keys.start()
        yield keys
    finally:
        await keys.close()


def names(keys: TokenKeys) -> list[str | None]:
    return [key.id for key in keys.current.keys]


async def test_keys_come_from_a_file(tmp_path: Path) -> None:
    async with keys_of(keys_file(tmp_path)) as keys:
        assert names(keys) == [None]


async def test_a_file_that_is_wrong_stops_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for source in (tmp_path / "missing.pem", tmp_path):
        with pytest.raises(ConfigError, match="can't be used"):
            await TokenKeys(str(source)).start()
    wrong = tmp_path / "keys.json"
    wrong.write_text('{"keys": []}')
    with pytest.raises(ConfigError):
        await TokenKeys(str(wrong)).start()
    assert "no key for EdDSA" in caplog.text


async def test_keys_come_from_a_url_and_a_new_one_is_found_when_a_token_names_it(
    issuer: Issuer,
) -> None:
    async with keys_of(issuer.url) as keys:
        assert names(keys) == ["first"]
        issuer.body = BOTH
        assert await keys.look_again()
        assert names(keys) == ["first", "second"]


async def test_a_key_that_the_issuer_has_withdrawn_is_gone(issuer: Issuer) -> None:
    issuer.body = BOTH
    async with keys_of(issuer.url) as keys:
        issuer.body = FIRST
        await keys.look_again()
        assert names(keys) == ["first"]


async def test_strangers_cant_make_us_ask_again_and_again(issuer: Issuer) -> None:
    async with keys_of(issuer.url, again=3600.0) as keys:
        assert not await keys.look_again()
        assert issuer.asked == 1


async def test_all_who_ask_at_once_wait_for_one_read(issuer: Issuer) -> None:
    async with keys_of(issuer.url) as keys:
        answered = asyncio.Event()
        issuer.before, issuer.body = answered.wait, BOTH
        waiting = [asyncio.create_task(keys.look_again()) for _ in range(50)]
        while issuer.asked < 2:  # noqa: ASYNC110 - what is waited for sets no event
            await asyncio.sleep(0.001)
        # One caller that gives up doesn't cancel the read for the others.
        waiting.pop().cancel()
        answered.set()
        assert all(await asyncio.gather(*waiting))
        assert issuer.asked == 2
        assert names(keys) == ["first", "second"]


@pytest.mark.parametrize(
    ("status", "body", "headers"),
    [
        ("200 OK", b"", ""),
        ("200 OK", b"<html>", ""),
        ("200 OK", b'{"keys": [{}]}', ""),
        ("200 OK", b"\xff" * 100, ""),
        ("200 OK", FIRST + b" " * MAX_BYTES, ""),
        ("500 Internal Server Error", FIRST, ""),
        ("302 Found", FIRST, "Location: http://127.0.0.1:1/\r\n"),
        ("200 OK", public_pem(ed25519("evil")), "Content-Encoding: gzip\r\n"),
    ],
)
async def test_garbage_leaves_the_old_keys_and_one_line_in_the_log(
    issuer: Issuer, caplog: pytest.LogCaptureFixture, status: str, body: bytes, headers: str
) -> None:
    caplog.set_level(logging.INFO, "newsfabric.tokens.token_keys")
    async with keys_of(issuer.url) as keys:
        issuer.status, issuer.body, issuer.headers = status, body, headers
        for _ in range(3):
            assert await keys.look_again()
        assert names(keys) == ["first"]
        assert len([r for r in caplog.records if r.levelno == logging.WARNING]) == 1
        issuer.status, issuer.body, issuer.headers = "200 OK", BOTH, ""
        await keys.look_again()
        assert names(keys) == ["first", "second"]


async def test_an_issuer_that_is_down_costs_nobody_who_is_known(issuer: Issuer) -> None:
    async with keys_of(issuer.url) as keys:
        keys._read = TokenKeys("http://127.0.0.1:1/")._read
        await keys.look_again()
        assert names(keys) == ["first"]


async def test_an_issuer_that_is_slow_is_given_up(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with keys_of(issuer.url) as keys:
        monkeypatch.setattr("newsfabric.tokens.token_keys._TIMEOUT", 0.05)
        never = asyncio.Event()
        issuer.before = never.wait
        async with asyncio.timeout(60):
            await keys.look_again()
        assert names(keys) == ["first"]
        never.set()


async def test_one_that_is_down_at_the_start_is_asked_again(issuer: Issuer) -> None:
    issuer.status = "503 Service Unavailable"
    async with keys_of(issuer.url, again=0.02) as keys:
        assert names(keys) == []
        issuer.status = "200 OK"
        fresh = asyncio.create_task(keys.keep_fresh())
        async with asyncio.timeout(60):
            while not keys.current.keys:  # noqa: ASYNC110 - what is waited for sets no event
                await asyncio.sleep(0.005)
        fresh.cancel()
        await asyncio.gather(fresh, return_exceptions=True)


@pytest.mark.parametrize(
    "source",
    [
        "http://accounts.example.org/keys.json",
        "ftp://127.0.0.1/keys.json",
        "file:///etc/passwd",
        "https://",
        "http://127.0.0.1.example.org/",
    ],
)
def test_keys_that_could_be_anybodys_are_not_fetched(source: str) -> None:
    with pytest.raises(ConfigError, match="https"):
        TokenKeys(source)
