"""Who may publish over HTTP: whoever has the key, or, on loopback, whoever is on this machine."""

from __future__ import annotations

import dataclasses
import hmac
import ipaddress
from pathlib import Path
from typing import Final

from tornado.httputil import HTTPHeaders

from newsfabric.errors import ConfigError

_BEARER: Final = "bearer "
_MIN_KEY: Final = 16


@dataclasses.dataclass(frozen=True, slots=True)
class PublishAccess:
    """``key`` None lets everyone publish. ``repr`` hides it."""

    key: str | None = dataclasses.field(default=None, repr=False)

    def allows(self, headers: HTTPHeaders) -> bool:
        """Whether ``X-API-Key`` or ``Authorization: Bearer`` carries the key."""
        if self.key is None:
            return True
        given = headers.get("X-API-Key")
        authorization = headers.get("Authorization", "")
        if given is None and authorization[: len(_BEARER)].lower() == _BEARER:
            given = authorization[len(_BEARER) :].strip()
        # Bytes, because compare_digest takes no other than ASCII text.
        return hmac.compare_digest((given or "").encode(), self.key.encode())


def read_key(path: Path | None) -> str | None:
    """The key in the file at ``path``; ConfigError if it can't be read or is too short."""
    if path is None:
        return None
    try:
        key = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigError(f"--api-key-file: {exc}") from exc
    if len(key) < _MIN_KEY:
        raise ConfigError(f"--api-key-file: {path} needs a key of at least {_MIN_KEY} characters")
    return key


def check_exposure(host: str, key: str | None) -> None:
    """ConfigError if ``host`` can be reached from elsewhere and anyone could publish."""
    if key is None and not _is_loopback(host):
        raise ConfigError(
            f"--host {host} isn't loopback: anyone there could publish; give --api-key-file as well"
        )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
