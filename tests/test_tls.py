"""TLS of a process's own ports and of its requests, with real certificates on real sockets."""

from __future__ import annotations

import asyncio
import math
import socket
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import tornado.web
from authorities import DAY, Authority, Certified, put

from newsfabric import metrics, tls
from newsfabric.brokers.management import Management
from newsfabric.errors import ConfigError, ManagementError
from newsfabric.process.service import listen
from newsfabric.settings import Credentials, ServerFiles, TlsFiles
from newsfabric.tls import ClientTls, ServerTls


class Overview(tornado.web.RequestHandler):
    """A broker's ``/api/overview``."""

    def get(self) -> None:
        self.write({"object_totals": {"connections": 7}})


@pytest.fixture
def ours(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "ours")


@pytest.fixture
def certified(ours: Authority) -> Certified:
    return ours.issue()


@asynccontextmanager
async def serving(files: Certified) -> AsyncIterator[int]:
    pages = tornado.web.Application([(r"/api/overview", Overview)])
    shown = ServerFiles(files.certificate, files.key)
    server, port = listen(pages, host="127.0.0.1", port=0, tls=shown)
    try:
        yield port
    finally:
        server.stop()
        await server.close_all_connections()


async def count_connections(port: int, files: TlsFiles, *, host: str = "127.0.0.1") -> int:
    """Return the number of connections that the broker reports; ManagementError without trust."""
    credentials = Credentials(tls=files)
    async with Management(f"https://{host}:{port}", credentials) as api:
        return int((await api.overview())["object_totals"]["connections"])


async def ends_of(port: int, authority: Path) -> str:
    """Return the expiry of the certificate that ``port`` shows."""
    context = ssl.create_default_context(cafile=authority)
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    shown = writer.get_extra_info("peercert")
    writer.close()
    await writer.wait_closed()
    return str(shown["notAfter"])


def expiry(use: str) -> float:
    found = metrics.REGISTRY.get_sample_value(
        "newsfabric_tls_certificate_expiry_timestamp_seconds", {"use": use}
    )
    return math.nan if found is None else found


async def test_a_port_with_a_certificate_is_https(ours, certified):
    async with serving(certified) as port:
        assert await count_connections(port, TlsFiles(authorities=ours.file)) == 7


async def test_and_nothing_else(certified):
    async with serving(certified) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /api/overview HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        with pytest.raises(ConnectionResetError):
            await reader.read()
        writer.close()


async def test_nobody_trusts_another_authority_host_or_an_expired_certificate(ours, tmp_path):
    async def refusal(files: Certified, trusted: Path | None, host: str = "127.0.0.1") -> str:
        async with serving(files) as port:
            with pytest.raises(ManagementError) as refused:
                await count_connections(port, TlsFiles(authorities=trusted), host=host)
            return str(refused.value)

    good = ours.issue()
    other = Authority(tmp_path, "other").file
    assert "certificate verify failed" in await refusal(good, other)
    assert "certificate verify failed" in await refusal(good, None)
    assert "Hostname mismatch" in await refusal(good, ours.file, "localhost")
    expired = ours.issue("127.0.0.1", days=0.5)
    assert "certificate has expired" in await refusal(expired, ours.file)


async def test_a_renewed_certificate_is_shown_to_the_next_who_connects(ours, certified):
    async with serving(certified) as port:
        first = await ends_of(port, ours.file)
        put(ours.sign(days=5), certified)
        second = await ends_of(port, ours.file)
    assert first != second
    assert ssl.cert_time_to_seconds(second) - ssl.cert_time_to_seconds(first) == 2 * 86400


async def test_in_the_middle_of_a_renewal_the_old_one_is_shown(ours, certified, caplog):
    async with serving(certified) as port:
        first = await ends_of(port, ours.file)
        renewed = ours.sign(days=5)
        certified.key.write_bytes(renewed.key)
        assert await ends_of(port, ours.file) == first
        assert (
            "the key isn't the certificate's; keeping the certificates read before" in caplog.text
        )
        certified.certificate.write_bytes(renewed.certificate)
        assert await ends_of(port, ours.file) != first


async def test_a_connection_lives_through_a_renewal(ours, certified):
    request = b"GET /api/overview HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    async with serving(certified) as port:
        context = ssl.create_default_context(cafile=ours.file)
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        for _ in range(2):
            writer.write(request)
            assert (await reader.readuntil(b"}}")).endswith(
                b'{"object_totals": {"connections": 7}}'
            )
            put(ours.sign(days=5), certified)
        writer.close()
        await writer.wait_closed()


async def test_a_new_authority_is_trusted_by_the_next_connection(ours, certified, tmp_path):
    new = Authority(tmp_path, "new")
    bundle = tmp_path / "bundle.pem"
    bundle.write_bytes(ours.file.read_bytes())
    known = ClientTls(TlsFiles(authorities=bundle))
    async with serving(new.issue()) as port:
        with pytest.raises(ssl.SSLCertVerificationError):
            await asyncio.open_connection("127.0.0.1", port, ssl=known.context())
        bundle.write_bytes(ours.file.read_bytes() + new.file.read_bytes())
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=known.context())
        writer.close()
        await writer.wait_closed()


async def test_who_says_nothing_keeps_nobody_waiting(ours, certified):
    async with serving(certified) as port:
        with socket.create_connection(("127.0.0.1", port)):
            assert await count_connections(port, TlsFiles(authorities=ours.file)) == 7


def test_a_context_of_ours_verifies_and_checks_the_host_s_name(ours):
    for made in (ClientTls(TlsFiles()), ClientTls(TlsFiles(authorities=ours.file))):
        context = made.context()
        assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
        assert made.context() is context


def test_the_machine_s_authorities_are_trusted_only_where_they_may_be(ours):
    alone = ClientTls(TlsFiles(authorities=ours.file)).context()
    beside = ClientTls(TlsFiles(authorities=ours.file), also_system=True).context()
    assert len(alone.get_ca_certs()) == 1
    assert len(beside.get_ca_certs()) == 1 + len(ClientTls(TlsFiles()).context().get_ca_certs())


def test_files_that_are_missing_or_wrong_are_a_config_error_that_names_them(
    ours, certified, tmp_path
):
    with pytest.raises(ConfigError, match=r"none\.pem: No such file"):
        ClientTls(TlsFiles(authorities=tmp_path / "none.pem"))
    other = ours.issue("other")
    with pytest.raises(ConfigError, match="the key isn't the certificate's"):
        ServerTls(ServerFiles(certified.certificate, other.key))
    with pytest.raises(ConfigError, match=r"key\.pem"):
        ServerTls(ServerFiles(certified.key, certified.key))


@pytest.fixture
def nothing_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget all files, as in a process that has just started."""
    monkeypatch.setattr(tls, "_HELD", {})


@pytest.mark.usefixtures("nothing_held")
def test_metrics_say_when_a_certificate_ends_and_when_its_renewal_does(ours):
    soon = ours.issue("soon", days=1.5)
    begins = time.time() - 86400
    ServerTls(ServerFiles(soon.certificate, soon.key))
    assert expiry("server") == pytest.approx(begins + 1.5 * DAY.total_seconds(), abs=60)
    put(ours.sign("soon", days=2), soon)
    assert expiry("server") == pytest.approx(begins + 2 * DAY.total_seconds(), abs=60)
    before = expiry("server")
    soon.certificate.unlink()
    assert expiry("server") == before


@pytest.mark.usefixtures("nothing_held")
def test_metrics_say_when_what_is_shown_ends_not_what_cannot_be_shown(ours):
    soon = ours.issue("soon", days=1.5)
    ServerTls(ServerFiles(soon.certificate, soon.key))
    before = expiry("server")
    renewed = ours.sign("soon", days=5)
    soon.certificate.write_bytes(renewed.certificate)
    assert expiry("server") == before
    soon.key.write_bytes(renewed.key)
    assert expiry("server") > before + DAY.total_seconds()


@pytest.mark.usefixtures("nothing_held")
def test_of_several_authorities_the_last_one_counts(ours, tmp_path):
    soon = ours.issue(days=2).certificate
    bundle = tmp_path / "bundle.pem"
    bundle.write_bytes(soon.read_bytes() + ours.file.read_bytes())
    ClientTls(TlsFiles(authorities=bundle))
    assert expiry("authority") == pytest.approx(time.time() + 9 * 86400, abs=60)
