"""Requests to one HTTP server, over plain TCP and TLS: how many connections the server sees."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from authorities import Authority, Certified

from newsfabric.brokers.management import Management
from newsfabric.errors import ManagementError
from newsfabric.http import kept_connections
from newsfabric.http.kept_connections import MAX_CONNECTIONS, KeptConnections, Reply
from newsfabric.settings import Credentials, TlsFiles
from newsfabric.tls import ClientTls

LIMIT = 1000


def reply(body: bytes, *headers: str, status: str = "200 OK") -> bytes:
    lines = [f"HTTP/1.1 {status}", *headers, f"Content-Length: {len(body)}", "", ""]
    return "\r\n".join(lines).encode() + body


class Server:
    """Counts its connections; ``act`` replies to a request, or closes the connection."""

    def __init__(self) -> None:
        self.connections = 0
        self.requests: list[str] = []
        self.writers: list[asyncio.StreamWriter] = []
        self.tasks: list[asyncio.Task[None] | None] = []
        self.at_once = 0
        self.act: Callable[[asyncio.StreamWriter, int], Awaitable[None]] = self.answer
        self.url = ""

    async def answer(self, writer: asyncio.StreamWriter, number: int) -> None:
        """Reply with the request's number on its connection."""
        writer.write(reply(str(number).encode()))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writers.append(writer)
        self.tasks.append(asyncio.current_task())
        self.at_once = max(self.at_once, sum(not each.is_closing() for each in self.writers))
        number = 0
        ends = (OSError, asyncio.IncompleteReadError, asyncio.CancelledError)
        with contextlib.suppress(*ends):
            while not writer.is_closing():
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = head.lower().partition("content-length: ")[2].partition("\r")[0]
                await reader.readexactly(int(length or 0))
                self.requests.append(head)
                number += 1
                await self.act(writer, number)
        writer.transport.abort()

    async def stop(self) -> None:
        tasks = [task for task in self.tasks if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks)

    def lines(self) -> list[str]:
        return [each.partition(" HTTP")[0] for each in self.requests]


async def closes(writer: asyncio.StreamWriter, _: int) -> None:
    writer.transport.abort()


@pytest.fixture(params=["plain", "tls"])
async def server(request: pytest.FixtureRequest, certified: Certified) -> AsyncIterator[Server]:
    made = Server()
    context = None
    if request.param == "tls":
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certified.certificate, certified.key)
    listening = await asyncio.start_server(made.serve, "127.0.0.1", 0, ssl=context)
    port = listening.sockets[0].getsockname()[1]
    made.url = f"http{'s' if context else ''}://127.0.0.1:{port}"
    yield made
    listening.close()
    await made.stop()
    await listening.wait_closed()


@pytest.fixture
def certified(tmp_path: Path) -> Certified:
    return Authority(tmp_path, "ours").issue()


@pytest.fixture
def tls(certified: Certified) -> ClientTls:
    return ClientTls(TlsFiles(authorities=certified.authority))


@pytest.fixture
def client(server: Server, tls: ClientTls) -> Iterator[KeptConnections]:
    with contextlib.closing(made(server.url, tls)) as opened:
        yield opened


def made(url: str, tls: ClientTls, *, timeout: float = 20.0) -> KeptConnections:
    headers = {"Authorization": "Basic hush-hush"}
    used = tls if url.startswith("https") else None
    return KeptConnections(url, timeout=timeout, max_bytes=LIMIT, headers=headers, tls=used)


async def test_requests_one_after_the_other_share_one_connection(
    server: Server, client: KeptConnections
) -> None:
    found = [await client.send("GET", "/a?b=c") for _ in range(50)]
    found.append(await client.send("PUT", "/d", b"{}"))
    found.append(await client.send("POST", "/e", b"{}"))
    found.append(await client.send("DELETE", "/f"))
    assert found == [Reply(200, str(n).encode()) for n in range(1, 54)]
    assert server.connections == 1
    assert server.lines()[-4:] == ["GET /a?b=c", "PUT /d", "POST /e", "DELETE /f"]
    assert "Authorization: Basic hush-hush\r\n" in server.requests[0]
    assert f"Host: {server.url.partition('//')[2]}\r\n" in server.requests[0]


async def test_more_requests_at_once_than_connections_wait_for_one(
    server: Server, client: KeptConnections
) -> None:
    full = asyncio.Barrier(MAX_CONNECTIONS)

    async def answers_four_at_once(writer: asyncio.StreamWriter, number: int) -> None:
        await full.wait()
        await server.answer(writer, number)

    server.act = answers_four_at_once
    await asyncio.gather(*(client.send("GET", "/") for _ in range(5 * MAX_CONNECTIONS)))
    assert (server.connections, server.at_once) == (MAX_CONNECTIONS, MAX_CONNECTIONS)


async def test_a_request_that_finds_all_connections_busy_waits_within_its_deadline(
    server: Server, tls: ClientTls
) -> None:
    async def never(writer: asyncio.StreamWriter, number: int) -> None:
        await asyncio.Event().wait()

    server.act = never
    with contextlib.closing(made(server.url, tls, timeout=0.5)) as client:
        asked = [client.send("GET", "/") for _ in range(3 * MAX_CONNECTIONS)]
        found = await asyncio.gather(*asked, return_exceptions=True)
    assert [str(each) for each in found] == ["no reply within 0.5 s"] * len(asked)
    # All would be sent, one after the other, if a deadline began with a connection.
    assert len(server.requests) < len(asked)


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
async def test_a_request_that_meets_a_closed_connection_is_sent_again_on_a_new_one(
    server: Server, client: KeptConnections, method: str
) -> None:
    async def answers_only_the_first(writer: asyncio.StreamWriter, number: int) -> None:
        await (server.answer if number == 1 else closes)(writer, number)

    server.act = answers_only_the_first
    for _ in range(3):
        assert await client.send(method, "/") == Reply(200, b"1")
    assert (server.connections, len(server.requests)) == (3, 5)


async def test_all_kept_connections_that_are_closed_fail_no_request(
    server: Server, client: KeptConnections
) -> None:
    full = asyncio.Barrier(MAX_CONNECTIONS)

    async def answers_four_then_closes(writer: asyncio.StreamWriter, number: int) -> None:
        if number > 1:
            await closes(writer, number)
            return
        if server.connections <= MAX_CONNECTIONS:
            await full.wait()
        await server.answer(writer, number)

    server.act = answers_four_then_closes
    for _ in range(2):
        await asyncio.gather(*(client.send("GET", "/") for _ in range(MAX_CONNECTIONS)))
    assert server.connections == 2 * MAX_CONNECTIONS


async def test_a_post_is_never_sent_again(server: Server, client: KeptConnections) -> None:
    async def answers_only_the_first(writer: asyncio.StreamWriter, number: int) -> None:
        await (server.answer if number == 1 else closes)(writer, number)

    server.act = answers_only_the_first
    await client.send("GET", "/")
    with pytest.raises(ConnectionError):
        await client.send("POST", "/", b"{}")
    assert server.lines() == ["GET /", "POST /"]


async def test_a_new_connection_that_is_closed_without_a_reply_is_a_failure(
    server: Server, client: KeptConnections
) -> None:
    server.act = closes
    with pytest.raises(ConnectionError, match="the connection was closed without a reply"):
        await client.send("GET", "/")
    assert server.lines() == ["GET /"]


async def test_a_connection_that_was_closed_while_idle_gets_no_request(
    server: Server, client: KeptConnections
) -> None:
    await client.send("GET", "/")
    (kept,) = client._idle
    server.writers[0].close()
    while kept._transport is not None:  # noqa: ASYNC110 - no events to wait for
        await asyncio.sleep(0.001)
    # A POST isn't repeated: it found a new connection at once.
    assert await client.send("POST", "/", b"{}") == Reply(200, b"1")
    assert len(server.requests) == 2


async def test_a_server_that_dies_during_its_reply_is_asked_once(
    server: Server, client: KeptConnections
) -> None:
    async def dies(writer: asyncio.StreamWriter, number: int) -> None:
        if number == 1:
            await server.answer(writer, number)
            return
        writer.write(reply(b"abc")[:-1])
        await writer.drain()
        writer.close()

    server.act = dies
    await client.send("GET", "/")
    with pytest.raises(ConnectionError):
        await client.send("GET", "/")
    assert len(server.requests) == 2


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_reply_is_bounded(server: Server, client: KeptConnections, chunked: bool) -> None:
    async def answers_much(writer: asyncio.StreamWriter, number: int) -> None:
        body = bytes(LIMIT + number - 1)
        if chunked:
            head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
            writer.write(b"%b%x\r\n%b\r\n0\r\n\r\n" % (head, len(body), body))
        else:
            writer.write(reply(body))

    server.act = answers_much
    assert len((await client.send("GET", "/")).body) == LIMIT
    with pytest.raises(ConnectionError, match="a reply of more than 1000 bytes"):
        await client.send("GET", "/")
    assert (await client.send("GET", "/")).status == 200
    assert server.connections == 2


async def test_a_slow_reply_ends_at_the_deadline_and_never_answers_the_next_request(
    server: Server, tls: ClientTls
) -> None:
    async def drips(writer: asyncio.StreamWriter, number: int) -> None:
        if server.connections > 1:
            await server.answer(writer, number)
            return
        writer.write(reply(bytes(500))[:-400])
        with contextlib.suppress(OSError):
            while not writer.is_closing():
                writer.write(b" ")
                await writer.drain()
                await asyncio.sleep(0.01)

    server.act = drips
    with contextlib.closing(made(server.url, tls, timeout=2.0)) as client:
        with pytest.raises(TimeoutError, match=r"no reply within 2 s"):
            await client.send("GET", "/")
        assert await client.send("GET", "/") == Reply(200, b"1")
    assert server.connections == 2


async def test_a_cancelled_request_closes_its_connection(
    server: Server, client: KeptConnections
) -> None:
    heard = asyncio.Event()

    async def waits(writer: asyncio.StreamWriter, number: int) -> None:
        heard.set()
        if server.connections > 1:
            await server.answer(writer, number)

    server.act = waits
    asking = asyncio.create_task(client.send("GET", "/"))
    await heard.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert await client.send("GET", "/") == Reply(200, b"1")
    assert server.connections == 2


@pytest.mark.parametrize(
    "sent",
    [
        reply(b"1", "Connection: close"),
        reply(b"1") + reply(b"2"),
        reply(b"1").replace(b"HTTP/1.1", b"HTTP/1.0"),
    ],
    ids=["the server closes it", "bytes that nobody asked for", "HTTP/1.0"],
)
async def test_a_connection_that_cant_be_used_again_isnt(
    server: Server, client: KeptConnections, sent: bytes
) -> None:
    async def answers(writer: asyncio.StreamWriter, number: int) -> None:
        writer.write(sent)

    server.act = answers
    for _ in range(3):
        assert await client.send("GET", "/") == Reply(200, b"1")
    assert server.connections == 3


async def test_bytes_on_an_idle_connection_answer_no_request(
    server: Server, client: KeptConnections
) -> None:
    await client.send("GET", "/")
    (kept,) = client._idle
    server.writers[0].write(reply(b"forged"))
    while kept._transport is not None:  # noqa: ASYNC110 - no events to wait for
        await asyncio.sleep(0.001)
    assert await client.send("GET", "/") == Reply(200, b"1")


async def test_a_redirect_is_a_reply_like_others(server: Server, client: KeptConnections) -> None:
    async def redirects(writer: asyncio.StreamWriter, number: int) -> None:
        writer.write(reply(b"", f"Location: {server.url}/b", status="302 Found"))

    server.act = redirects
    assert await client.send("GET", "/a") == Reply(302, b"")
    assert server.lines() == ["GET /a"]


@pytest.mark.parametrize("bound", ["MAX_AGE", "MAX_IDLE"])
async def test_an_old_connection_and_one_that_was_idle_for_long_get_no_request(
    server: Server, client: KeptConnections, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    monkeypatch.setattr(kept_connections, bound, 0.0)
    for _ in range(3):
        await client.send("GET", "/")
    assert (server.connections, len(client._idle)) == (3, 1)


async def test_after_a_renewal_of_the_authorities_new_connections_are_opened(
    server: Server, client: KeptConnections, certified: Certified, tmp_path: Path
) -> None:
    await client.send("GET", "/")
    other = Authority(tmp_path, "other").file.read_bytes()
    certified.authority.write_bytes(certified.authority.read_bytes() + other)
    await client.send("GET", "/")
    assert server.connections == (2 if server.url.startswith("https") else 1)
    certified.authority.write_bytes(other + b"\n")
    if server.url.startswith("https"):
        with pytest.raises(ssl.SSLCertVerificationError):
            await client.send("GET", "/")


async def test_closing_fails_a_request_that_waits_for_its_reply(
    server: Server, client: KeptConnections
) -> None:
    async def closes_the_client(writer: asyncio.StreamWriter, number: int) -> None:
        client.close()

    server.act = closes_the_client
    with pytest.raises(ConnectionError):
        await client.send("GET", "/")
    assert len(server.requests) == 1


async def test_a_refusal_is_one_although_the_host_has_several_addresses(
    unused_tcp_port: int,
) -> None:
    for host in ("127.0.0.1", "localhost"):
        async with Management(f"http://{host}:{unused_tcp_port}", Credentials()) as api:
            with pytest.raises(ManagementError) as refused:
                await api.overview()
        assert refused.value.status == 0
        assert isinstance(refused.value.__cause__, ConnectionRefusedError)


async def test_neither_password_nor_login_is_in_an_error(server: Server, tls: ClientTls) -> None:
    files = TlsFiles(authorities=tls._files.authorities)
    credentials = Credentials("keeper", "hush-hush", tls=files)
    async with Management(server.url, credentials, timeout=20.0) as api:
        texts = []
        for sent in (reply(b"x"), reply(b"", status="401 No"), b"\0", b"HTTP/1.1 200\r\n: \r\n"):

            async def answers(writer: asyncio.StreamWriter, _: int, sent: bytes = sent) -> None:
                writer.write(sent)
                await writer.drain()
                writer.close()

            server.act = answers
            with pytest.raises(ManagementError) as failed:
                await api.overview()
            texts.append(f"{failed.value!r} {failed.value.__cause__!r}")
    login = base64.b64encode(b"keeper:hush-hush").decode()
    assert f"Authorization: Basic {login}\r\n" in server.requests[0]
    assert [text for text in texts if "hush" in text or login in text] == []
