"""The right to publish over HTTP: by an API key, or, on loopback, for all on this machine."""

from __future__ import annotations

import dataclasses
import hmac
import ipaddress
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from tornado.httputil import HTTPHeaders

from newsfabric.errors import ConfigError
from newsfabric.tokens.bearer import bearer

_MIN_KEY: Final = 16


@dataclasses.dataclass(frozen=True, slots=True)
class ApiKey:
    """An API key of publisher ``app_id``; None allows any ``app_id`` that its holder names.

    ``repr`` hides the key.
    """

    key: str = dataclasses.field(repr=False)
    app_id: str | None = None


#: The caller where no key is required.
ANYONE: Final = ApiKey("")


@dataclasses.dataclass(frozen=True, slots=True)
class PublishAccess:
    """The keys that may publish; without ``keys`` everyone may."""

    keys: tuple[ApiKey, ...] = ()

    def caller(self, headers: HTTPHeaders) -> ApiKey | None:
        """Return the key in ``X-API-Key`` or ``Authorization: Bearer``; None if it isn't valid."""
        return key_of(_given(headers), self.keys) if self.keys else ANYONE

    @staticmethod
    def refusal(headers: HTTPHeaders) -> str:
        """Return the reason why there is no caller, and the remedy."""
        if _given(headers) is None:
            return "publishing needs an API key: curl -H 'X-API-Key: KEY'"
        return "this API key isn't one of this frontdesk's (--api-key-file)"


def _given(headers: HTTPHeaders) -> str | None:
    given = headers.get("X-API-Key")
    return bearer(headers) if given is None else given


def key_of(given: str | None, keys: Iterable[ApiKey]) -> ApiKey | None:
    """Return the one of ``keys`` that equals ``given``; None if none does."""
    # Bytes, because compare_digest accepts only ASCII text. All keys are compared, so that the time
    # doesn't reveal which key is nearly right.
    word = (given or "").encode()
    found = [key for key in keys if hmac.compare_digest(word, key.key.encode())]
    return found[0] if found else None


def read_keys(path: Path | None, option: str = "--api-key-file") -> tuple[ApiKey, ...]:
    """Return the keys in the file at ``path``: lines ``KEY`` or ``APP_ID KEY``, and ``#`` comments.

    Raise ConfigError, which names ``option``, if the file can't be read, has no key, or a short
    one.
    """
    if path is None:
        return ()
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigError(f"{option}: {exc}") from exc
    keys = [
        _key(line.split(), f"{option}: {path} line {n}")
        for n, line in enumerate(lines, 1)
        if line.strip() and not line.lstrip().startswith("#")
    ]
    if not keys:
        raise ConfigError(f"{option}: {path} needs a key of at least {_MIN_KEY} characters")
    return tuple(keys)


def _key(words: Sequence[str], where: str) -> ApiKey:
    if len(words) > 2:
        raise ConfigError(f"{where}: write KEY, or APP_ID KEY")
    if len(words[-1]) < _MIN_KEY:
        raise ConfigError(f"{where}: a key needs at least {_MIN_KEY} characters")
    return ApiKey(words[-1], words[0] if len(words) == 2 else None)


def check_exposure(host: str, keys: Sequence[ApiKey]) -> None:
    """Raise ConfigError if ``host`` can be reached from elsewhere and anyone could publish."""
    if not keys and not is_loopback(host):
        raise ConfigError(
            f"--host {host} isn't loopback: anyone there could publish; give --api-key-file as well"
        )


def is_loopback(host: str) -> bool:
    """Return whether a server on ``host`` can be reached only from this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
