"""The address and the login of a connection, read from an AMQP URL.

pika reads the URL, but not its TLS options: these are as in the URLs of RabbitMQ's shovels, which
name files. pika would take Python's own options, which could turn verification off.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlencode, urlsplit, urlunsplit

import pika

from newsfabric.errors import ConfigError
from newsfabric.settings import Credentials, TlsFiles
from newsfabric.tls import ClientTls

# Seconds. pika checks each interval and five seconds whether bytes were received since the last
# check, so a silent peer is noticed after 15 to 30 s. A closed socket is noticed at once.
HEARTBEAT: Final = 10
# A broker that has stopped reading for so long is left; another node may be better.
BLOCKED_TIMEOUT: Final = 300.0

# TLS options that a URL may have.
_IN_URL: Final = ("auth_mechanism", "cacertfile", "certfile", "keyfile", "ssl_options", "verify")


@dataclasses.dataclass(frozen=True, slots=True)
class Parameters:
    """The address and the login of a connection."""

    #: The connection's name for operators.
    name: str
    host: str
    port: int
    #: None for amqp://.
    tls: ClientTls | None
    #: All of these and the rest, in pika's form.
    for_pika: Any


def parameters_of(url: str, *, name: str, credentials: Credentials | None) -> Parameters:
    """Return the parameters of ``url``; ConfigError if it isn't an AMQP URL.

    Without ``credentials`` the login is that of the URL, else ``guest``. A broker at ``amqps://``
    must show a certificate for its host's name, by an authority of ``credentials``, or of the PEM
    file ``?cacertfile=``. The broker authenticates us by our certificate if ``credentials`` have
    one, or the URL has ``certfile``, ``keyfile`` and ``auth_mechanism=external``.
    """
    shown = url.rsplit("@", 1)[-1]
    if not url.startswith(("amqp://", "amqps://")):
        raise ConfigError(f"not an AMQP URL (amqp:// or amqps://): {shown!r}")
    try:
        return _parameters(
            credentials.in_url(url) if credentials else url,
            name,
            credentials.tls if credentials else TlsFiles(),
        )
    except (ValueError, TypeError) as exc:
        raise ConfigError(f"not an AMQP URL: {shown!r}: {exc}") from exc


def _parameters(url: str, name: str, files: TlsFiles) -> Parameters:
    url, tls_options = _without_tls(url)
    for_pika = pika.URLParameters(url)
    for_pika.heartbeat = HEARTBEAT
    for_pika.blocked_connection_timeout = BLOCKED_TIMEOUT
    for_pika.client_properties = {"connection_name": name, "product": "newsfabric"}
    tls = None
    if for_pika.ssl_options is not None:
        # A URL with a certificate must state its use (auth_mechanism), as for RabbitMQ's client.
        ours = files.certificate is not None
        files = _with_url(files, tls_options)
        tls = ClientTls(files)
        if _is_external(tls_options.get("auth_mechanism", "external" if ours else "plain"), files):
            for_pika.credentials = pika.credentials.ExternalCredentials()
    elif tls_options:
        raise ValueError(f"{min(tls_options)} is for amqps://")
    return Parameters(name, for_pika.host, for_pika.port, tls, for_pika)


def _without_tls(url: str) -> tuple[str, dict[str, str]]:
    """Return ``url`` without its TLS options, and these options."""
    parts = urlsplit(url)
    query = parse_qs(parts.query)
    tls_options = {}
    for name in _IN_URL:
        if values := query.pop(name, None):
            if len(values) > 1:
                raise ValueError(f"{name} is there {len(values)} times")
            tls_options[name] = values[0]
    if "ssl_options" in tls_options:
        raise ValueError("ssl_options could turn verification off: there is cacertfile")
    if tls_options.get("verify", "verify_peer") != "verify_peer":
        raise ValueError("certificates are always verified (verify_peer)")
    rest = urlencode(query, doseq=True)
    return urlunsplit((parts.scheme, parts.netloc, parts.path, rest, parts.fragment)), tls_options


def _with_url(files: TlsFiles, tls_options: dict[str, str]) -> TlsFiles:
    if "cacertfile" in tls_options:
        files = dataclasses.replace(files, authorities=Path(tls_options["cacertfile"]))
    if "certfile" in tls_options:
        key = Path(tls_options.get("keyfile", tls_options["certfile"]))
        files = dataclasses.replace(files, certificate=Path(tls_options["certfile"]), key=key)
    return files


def _is_external(mechanism: str, files: TlsFiles) -> bool:
    """Return whether the certificate of ``files`` is the login."""
    if mechanism not in ("plain", "external"):
        raise ValueError("auth_mechanism is plain or external")
    if mechanism == "external" and files.certificate is None:
        raise ValueError("auth_mechanism=external needs certfile and keyfile")
    return mechanism == "external"
