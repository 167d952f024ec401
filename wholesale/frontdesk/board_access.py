"""Who may see the board: an operator with a token, or, on loopback, whoever is on this machine.
Other frontdesks of the fabric may see this one's own region, with the key that all of them have.

An operator's token is a JWT of the readers' issuer with the claim ``operator: true``. It comes as
``Authorization: Bearer``, or in the cookie that ``POST /board/login`` sets. Keys are fetched and
kept fresh as a gateway's are (newsfabric.tokens.token_keys).

The frontdesks' key is in a file, a key a line: the first is shown to the others, and each is taken
of them. It is read anew each time: whoever puts a new key before the old one only writes the file.

What one would question: a request that a proxy on this machine forwards comes from loopback too,
and so do those of web pages in an operator's browser. The first are told by the headers that
proxies add, and need a token all the same; the second by Host and Origin
(newsfabric.process.operators).
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from tornado.httputil import HTTPHeaders

from newsfabric.errors import BadToken, ConfigError
from newsfabric.process.operators import refusal
from newsfabric.tokens import Login, TokenRules, verify
from newsfabric.tokens.bearer import bearer
from newsfabric.tokens.operator_tokens import LONGEST_S
from newsfabric.tokens.token_keys import TokenKeys
from wholesale.frontdesk.access import ApiKey, key_of, read_keys

COOKIE: Final = "newsfabric_board"
# A browser keeps cookies of 4,096 bytes at most, name and attributes included.
MAX_COOKIE_TOKEN: Final = 3500
_FORWARDED: Final = ("Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-IP", "Via")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BoardSettings:
    """How operators log in, and how frontdesks know each other.

    ``token_keys`` is a file (PEM or JWKS) or a JWKS URL; None: nobody can log in, so that the board
    is for loopback alone. ``key_file`` has the keys of the fabric's frontdesks, which they show
    each other over https or on this machine; with ``token_over_http`` over plain http, too.
    """

    token_keys: str | None = None
    token_audience: str | None = None
    token_issuer: str | None = None
    key_file: Path | None = None
    token_over_http: bool = False


async def read_board_keys(path: Path | None) -> tuple[ApiKey, ...]:
    """The keys of the fabric's frontdesks as they are now; none without a file.

    ConfigError if it has none, or one that is no word for a header.
    """
    keys = await asyncio.to_thread(read_keys, path, "--board-key-file")
    for key in keys:
        if key.app_id is not None or not (key.key.isascii() and key.key.isprintable()):
            raise ConfigError(f"--board-key-file: {path}: a line is a key, of ASCII characters")
    return keys


@dataclasses.dataclass(frozen=True, slots=True)
class Refusal:
    """Why somebody doesn't see the board. ``status`` 401 asks for a token."""

    status: int
    reason: str
    detail: str


class BoardAccess:
    """Decides who sees the board. ``loopback``: only this machine can ask at all."""

    def __init__(
        self,
        settings: BoardSettings,
        *,
        loopback: bool,
        names: Sequence[str] = (),
        clock: Callable[[], float],
    ) -> None:
        if settings.token_keys is None and (settings.token_audience or settings.token_issuer):
            raise ConfigError("--token-audience and --token-issuer need --token-keys")
        self.keys = TokenKeys(settings.token_keys) if settings.token_keys is not None else None
        self._rules = TokenRules(
            audience=settings.token_audience, issuer=settings.token_issuer, longest=LONGEST_S
        )
        self._key_file = settings.key_file
        self._loopback = loopback
        self._names = tuple(name.lower() for name in names)
        self._clock = clock

    def is_open_to(self, headers: HTTPHeaders) -> bool:
        """Whether no token is needed for a request with ``headers``."""
        if not self._loopback or any(name in headers for name in _FORWARDED):
            return False
        return refusal(headers.get("Host"), headers.get("Origin"), self._names) is None

    async def check(
        self, headers: HTTPHeaders, cookie: str | None, *, own: bool
    ) -> Login | Refusal | None:
        """Who asks: a login, None for somebody who needs none, or why it is refused.

        ``own``: for the document of the own region, which frontdesks of other regions may see.
        """
        if self.is_open_to(headers):
            return None
        token = bearer(headers)
        if own and self._key_file is not None:
            if await self._is_frontdesks(token):
                return None
            if self.keys is None:
                return Refusal(401, "unauthorized", "show a key of --board-key-file")
        return await self.login(cookie if token is None else token)

    async def _is_frontdesks(self, key: str | None) -> bool:
        try:
            return key_of(key, await read_board_keys(self._key_file)) is not None
        except ConfigError:
            # What isn't there opens nothing. This frontdesk, which asks the others with it, says so
            # on its own board.
            return False

    async def login(self, token: str | None) -> Login | Refusal:
        """The operator that ``token`` is of, or why it is nobody's."""
        if self.keys is None:
            return Refusal(403, "no_logins", "this frontdesk was given no --token-keys")
        if not token:
            return Refusal(401, "unauthorized", "the board is for operators: show a token of one")
        try:
            found = await self._verified(token)
        except BadToken as bad:
            return Refusal(401, "unauthorized", f"no good token: {bad.reason}")
        if not found.operator:
            return Refusal(403, "not_an_operator", "the token lacks the claim operator: true")
        return found

    async def _verified(self, token: str) -> Login:
        assert self.keys is not None
        try:
            return verify(token, self.keys.current, self._rules, self._clock())
        except BadToken as bad:
            # Newer keys may know better; strangers can't have them read more than now and then.
            if bad.reason != "unknown_key" or not await self.keys.look_again():
                raise
        return verify(token, self.keys.current, self._rules, self._clock())
