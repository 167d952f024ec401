"""``cassandra://HOST[:PORT],…/KEYSPACE?dc=NAME[&tls=…]``, and the login. Pure.

The URL is shown in process lists and logs, so it never holds a password: user and password come
from the environment, the password from a file if the environment names one.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qs, quote, urlsplit

from newsfabric.errors import ConfigError
from newsfabric.settings import Credentials, file_from

FORM: Final = "cassandra://HOST[:PORT],…/KEYSPACE?dc=NAME"
#: ``tls=system`` trusts the authorities that this machine trusts; else those in the named file.
SYSTEM_TLS: Final = "system"
DEFAULT_PORT: Final = 9042
# CQL: an unquoted identifier, so that nothing has to be quoted anywhere.
_KEYSPACE: Final = re.compile(r"[a-z][a-z0-9_]{0,47}", re.ASCII)
_CENTRE: Final = re.compile(r"[A-Za-z0-9_-]{1,63}", re.ASCII)


@dataclasses.dataclass(frozen=True, slots=True)
class Address:
    """The address of a store. ``hosts`` are the first nodes asked, for the list of all; ``centre``
    is the data centre (the region) whose nodes this process talks to. ``tls`` is :data:`SYSTEM_TLS`
    or the path of a PEM file of authorities for nodes' certificates; None: no TLS."""

    hosts: tuple[tuple[str, int], ...]
    keyspace: str
    centre: str
    tls: str | None = None

    def __str__(self) -> str:
        hosts = ",".join(f"{host}:{port}" for host, port in self.hosts)
        tls = "" if self.tls is None else f"&tls={quote(self.tls)}"
        return f"cassandra://{hosts}/{self.keyspace}?dc={self.centre}{tls}"


def parse_address(url: str) -> Address:
    """Return the address in ``url``; ConfigError with the reason if it is wrong."""
    parts = urlsplit(url)
    if "@" in parts.netloc:
        raise ConfigError(
            "a store's URL holds no user and password: set NEWSFABRIC_CASSANDRA_USERNAME and "
            "NEWSFABRIC_CASSANDRA_PASSWORD_FILE"
        )
    hosts = tuple(_host(text, url) for text in parts.netloc.split(","))
    keyspace = parts.path.removeprefix("/")
    if not _KEYSPACE.fullmatch(keyspace):
        raise _wrong(url, "the keyspace is a-z, 0-9 and _, and begins with a letter")
    options = parse_qs(parts.query, keep_blank_values=True)
    centre = options.pop("dc", [""])[-1]
    if not _CENTRE.fullmatch(centre):
        raise _wrong(url, "dc is the name of this region's data centre")
    tls = options.pop("tls", [None])[-1]
    if tls is not None and tls != SYSTEM_TLS and not tls.startswith("/"):
        raise _wrong(url, f"tls is {SYSTEM_TLS} or the full path of a PEM file of authorities")
    if options or parts.fragment:
        raise _wrong(url, "there is no option but dc and tls")
    return Address(hosts, keyspace, centre, tls)


def _host(text: str, url: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":") if ":" in text else (text, "", "")
    if not host or (colon and not (port.isascii() and port.isdecimal())):
        raise _wrong(url, f"{text!r} is no HOST or HOST:PORT")
    number = int(port) if colon else DEFAULT_PORT
    if not 0 < number < 65536:
        raise _wrong(url, f"{number} is no port")
    return host, number


def _wrong(url: str, why: str) -> ConfigError:
    return ConfigError(f"{url!r}: {why}; write {FORM}")


def login_from(environ: Mapping[str, str]) -> Credentials | None:
    """Return NEWSFABRIC_CASSANDRA_USERNAME with …_PASSWORD_FILE or …_PASSWORD; None without a user.

    ConfigError for a file that can't be read.
    """
    username = environ.get("NEWSFABRIC_CASSANDRA_USERNAME")
    if username is None:
        return None
    path = file_from(environ, "NEWSFABRIC_CASSANDRA_PASSWORD_FILE")
    if path is None:
        return Credentials(username, environ.get("NEWSFABRIC_CASSANDRA_PASSWORD", ""))
    try:
        return Credentials(username, path.read_text(encoding="utf-8").strip())
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigError(f"NEWSFABRIC_CASSANDRA_PASSWORD_FILE: {exc}") from exc
