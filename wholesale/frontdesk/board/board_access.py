"""The right to see the board: for operators with a token, and other frontdesks with a shared key.

Where the frontdesk listens on loopback alone, everybody on this machine may see the board. Other
frontdesks of the fabric may see only this one's own region.

An operator's token is a JWT of the readers' issuer with the claim ``operator: true``. It comes as
``Authorization: Bearer``, or in the cookie that ``POST /board/login`` sets. Keys to verify it are
fetched and refreshed as in a gateway (newsfabric.tokens.token_keys).

The frontdesks' shared keys are in a file, one a line: the first is shown to other frontdesks, and
each is accepted from them. The file is read each time, so a key is changed by writing the new key
before the old one.

The decision that a reader would question: requests from loopback need further checks. A proxy on
this machine forwards requests from loopback; the headers that proxies add reveal it, and such a
request needs a token. So do web pages in an operator's browser, revealed by Host and Origin
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
from wholesale.frontdesk.api.access import ApiKey, key_of, read_keys

COOKIE: Final = "newsfabric_board"
# A browser keeps cookies of at most 4,096 bytes, name and attributes included.
MAX_COOKIE_TOKEN: Final = 3500
_FORWARDED: Final = ("Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-IP", "Via")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BoardSettings:
    """Settings for the logins of operators, and for the shared keys of frontdesks.

    ``token_keys`` is a file (PEM or JWKS) or a JWKS URL; None: nobody can log in, and the board is
    for loopback alone. ``key_file`` has the keys of the fabric's frontdesks. They show one to each
    other over https or on this machine; with ``token_over_http`` over plain http, too.
    """

    token_keys: str | None = None
    token_audience: str | None = None
    token_issuer: str | None = None
    key_file: Path | None = None
    token_over_http: bool = False


async def read_board_keys(path: Path | None) -> tuple[ApiKey, ...]:
    """Return the present keys of the fabric's frontdesks; none without a file.

    Raise ConfigError if the file has no key, or one that can't be sent in a header.
    """
    keys = await asyncio.to_thread(read_keys, path, "--board-key-file")
    for key in keys:
        if key.app_id is not None or not (key.key.isascii() and key.key.isprintable()):
            raise ConfigError(f"--board-key-file: {path}: a line is a key, of ASCII characters")
    return keys


@dataclasses.dataclass(frozen=True, slots=True)
class BoardRefusal:
    """The reason why a request may not see the board. ``status`` 401 asks for a token."""

    status: int
    reason: str
    detail: str


class BoardAccess:
    """Decides who sees the board. ``loopback``: only this machine can send requests at all."""

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
        """Return whether a request with ``headers`` needs no token."""
        if not self._loopback or any(name in headers for name in _FORWARDED):
            return False
        return refusal(headers.get("Host"), headers.get("Origin"), self._names) is None

    async def check(
        self, headers: HTTPHeaders, cookie: str | None, *, own: bool
    ) -> Login | BoardRefusal | None:
        """Return the login of a request, None if it needs none, or the refusal.

        ``own``: for the document of the own region, which frontdesks of other regions may see.
        """
        if self.is_open_to(headers):
            return None
        token = bearer(headers)
        if own and self._key_file is not None:
            if await self._is_frontdesks(token):
                return None
            if self.keys is None:
                return BoardRefusal(401, "unauthorized", "show a key of --board-key-file")
        return await self.login(cookie if token is None else token)

    async def _is_frontdesks(self, key: str | None) -> bool:
        try:
            return key_of(key, await read_board_keys(self._key_file)) is not None
        except ConfigError:
            # A missing file grants nothing. This frontdesk needs the file to ask others, too, so
            # its own board shows the error.
            return False

    async def login(self, token: str | None) -> Login | BoardRefusal:
        """Return the operator's login by ``token``, or the reason why it is refused."""
        if self.keys is None:
            return BoardRefusal(403, "no_logins", "this frontdesk was given no --token-keys")
        if not token:
            return BoardRefusal(
                401, "unauthorized", "the board is for operators: show a token of one"
            )
        try:
            found = await self._verified(token)
        except BadToken as bad:
            return BoardRefusal(401, "unauthorized", f"no good token: {bad.reason}")
        if not found.operator:
            return BoardRefusal(403, "not_an_operator", "the token lacks the claim operator: true")
        return found

    async def _verified(self, token: str) -> Login:
        assert self.keys is not None
        try:
            return verify(token, self.keys.current, self._rules, self._clock())
        except BadToken as bad:
            # A refetch may find the key; its rate is limited, so strangers can't cause many.
            if bad.reason != "unknown_key" or not await self.keys.look_again():
                raise
        return verify(token, self.keys.current, self._rules, self._clock())
