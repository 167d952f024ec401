"""The decision on logins: which user a reader's token names, on each engine and transport.

It knows the keys (:mod:`newsfabric.tokens.token_keys`) and the revoked users, but no reader:
a login state is its argument and its result. A revocation is a message on the fabric's own topic
(``_fabric.revoked``). A gateway that starts reads all revocations from the store; until then no
user can log in. docs/design/0015 has the reasons.

A token is decided at once, unless it was signed with an unknown key. Then the keys are read again
first, at most every few seconds, and the reader's next verbs wait.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import orjson

from gateway.answers.access import AuthState
from gateway.process import measures
from gateway.process.settings import GatewaySettings
from gateway.process.tasks import Spawn
from gateway.wire.protocol import VerbRefusal
from newsfabric.backoff import Backoff
from newsfabric.closing import ErrorCode
from newsfabric.errors import BadToken, StoreError
from newsfabric.json_fields import mapping, text, whole
from newsfabric.messages.envelope import MAX_MS, Envelope
from newsfabric.store import Store
from newsfabric.store.rules import clock_ms
from newsfabric.tokens import Login, TokenRules, is_user, verify
from newsfabric.tokens.token_keys import TokenKeys
from newsfabric.topics import REVOKED, TopicTable

logger = logging.getLogger(__name__)

_PAGE: Final = 1_000
# Seconds that a start waits for the revocations before readers are let in.
_START_SECONDS: Final = 2.0
_GOOD: Final = measures.TOKENS.labels("good")


def decode_revocation(envelope: Envelope) -> tuple[str, int]:
    """Return user and time (ms since the epoch) of a revocation; ValueError if it is malformed."""
    fields = mapping(orjson.loads(envelope.body), "a revocation")
    user, at_ms = text(fields, "user"), whole(fields, "at", MAX_MS)
    if not is_user(user):
        raise ValueError("a revocation names a user")
    return user, at_ms


class Revocations:
    """The users whose tokens were revoked, and since when. Pure.

    Of a user only the latest revocation counts; a token issued later is valid. Above ``limit``
    users, the revocations heard longest ago are forgotten first. Each is forgotten ``ttl`` seconds
    after it was heard: by then the revoked tokens have expired. The clock for that is monotonic:
    one step of the machine's clock, a day forward and back, would make revoked tokens valid.
    """

    def __init__(self, ttl: float, *, limit: int = 100_000) -> None:
        self._ttl = ttl
        self.limit = limit
        # By user: when the revocation was made (ms) and when it was heard; in the order of hearing.
        self._revocations: dict[str, tuple[int, float]] = {}

    def __len__(self) -> int:
        return len(self._revocations)

    def add(self, user: str, at_ms: int, *, now_ms: int, now: float) -> bool:
        """Note that ``user`` was revoked at ``at_ms``; return False if that is nothing new. It is
        heard at ``now`` (seconds, monotonic), when the machine's clock reads ``now_ms``."""
        known = self._revocations.get(user)
        if (known is not None and at_ms <= known[0]) or at_ms + self._ttl * 1000 < now_ms:
            return False
        self._revocations.pop(user, None)
        self._revocations[user] = at_ms, now
        while len(self._revocations) > self.limit or self._oldest() < now - self._ttl:
            del self._revocations[next(iter(self._revocations))]
        return True

    def _oldest(self) -> float:
        return next(iter(self._revocations.values()))[1]

    def revokes(self, login: Login) -> bool:
        """Return whether ``login`` was revoked (RFC 7519's ``iat`` may be a whole second)."""
        known = self._revocations.get(login.user)
        return known is not None and login.issued_ms <= known[0]

    def __iter__(self) -> Iterator[tuple[str, int]]:
        return ((user, at_ms) for user, (at_ms, _) in self._revocations.items())


@dataclasses.dataclass(frozen=True, slots=True)
class LoginResult:
    """The reader's new login state. ``refusal`` is None if the login was accepted.

    ``hang_up``: the reader sent too many bad tokens.
    """

    auth: AuthState
    refusal: VerbRefusal | None = None
    hang_up: bool = False


@dataclasses.dataclass(eq=False, repr=False)
class Authenticator:
    """The decisions on the logins of one gateway. Callers :meth:`start` it and :meth:`close` it.

    ``evict`` is called with the users revoked and when (ms): it closes their connections.
    """

    settings: GatewaySettings
    table: TopicTable
    store: Store
    spawn: Spawn
    evict: Callable[[Sequence[tuple[str, int]]], None]

    def __post_init__(self) -> None:
        tokens, longest = self.settings.tokens, self.table.tokens_ttl
        self.revocations = Revocations(longest)
        self._rules = TokenRules(
            audience=tokens.audience,
            issuer=tokens.issuer,
            leeway=tokens.leeway,
            longest=longest,
        )
        self._keys = (
            None if tokens.keys is None else TokenKeys(tokens.keys, again=tokens.keys_again)
        )
        self._loaded = asyncio.Event()
        self._bad = 0

    @property
    def ready(self) -> bool:
        """True once everything is known that a login needs."""
        return self._keys is None or self._loaded.is_set()

    async def start(self) -> None:
        """Read keys and revocations; ConfigError if the file of keys is wrong.

        Reads that fail now are retried.
        """
        if self._keys is None:
            return
        await self._keys.start()
        self.spawn(self._keys.keep_fresh())
        self.spawn(self._load())
        try:
            async with asyncio.timeout(_START_SECONDS):
                await self._loaded.wait()
        except TimeoutError:
            logger.warning("the revocations aren't read yet: nobody can log in until they are")

    async def close(self) -> None:
        """Release the keys, after the tasks have ended."""
        if self._keys is not None:
            await self._keys.close()

    def apply_revocations(self, envelopes: Iterable[Envelope]) -> None:
        """Apply revocations, the oldest first, and evict their users."""
        now_ms, now, news = clock_ms(), time.monotonic(), []
        for envelope in envelopes:
            try:
                user, at_ms = decode_revocation(envelope)
            except ValueError as exc:
                about = {"id": envelope.id}
                logger.warning("a revocation that can't be read: %s", exc, extra=about)
                continue
            if self.revocations.add(user, at_ms, now_ms=now_ms, now=now):
                news.append((user, at_ms))
        if news:
            self.evict(news)

    def user_of(self, token: str) -> str | None:
        """Return the user of ``token``, by the keys and revocations known now; else None."""
        if self._keys is None or not self._loaded.is_set():
            return None
        try:
            login = verify(token, self._keys.current, self._rules, time.time())
        except BadToken:
            return None
        return None if self.revocations.revokes(login) else login.user

    def decide(self, auth: AuthState, token: str, *, refresh: bool = False) -> LoginResult | None:
        """Return the result for ``token`` of a reader with ``auth``; None: :meth:`decide_later`."""
        if (refusal := self._not_now(auth, refresh=refresh)) is not None:
            return LoginResult(auth, refusal)
        try:
            return self._log_in(auth, token)
        except BadToken as bad:
            return None if bad.reason == "unknown_key" else self._refused(auth, bad)

    async def decide_later(self, auth: AuthState, token: str) -> LoginResult:
        """Return the result after reading the keys again, if they may be read again now."""
        assert self._keys is not None
        await self._keys.look_again()
        try:
            return self._log_in(auth, token)
        except BadToken as bad:
            return self._refused(auth, bad)

    async def decide_now_or_later(self, auth: AuthState, token: str) -> LoginResult:
        """Return the result, reading the keys again if necessary."""
        return self.decide(auth, token) or await self.decide_later(auth, token)

    def _not_now(self, auth: AuthState, *, refresh: bool) -> VerbRefusal | None:
        if self._keys is None:
            return VerbRefusal(code=ErrorCode.UNAUTHORIZED, reason="logins aren't set up here")
        if not self._loaded.is_set():
            reason = "nobody can log in yet"
            return VerbRefusal(code=ErrorCode.INTERNAL, reason=reason, temporary=True)
        if refresh and auth.login is None:
            return VerbRefusal(code=ErrorCode.UNAUTHORIZED, reason="log in first")
        return None

    def _log_in(self, auth: AuthState, token: str) -> LoginResult:
        assert self._keys is not None
        login = verify(token, self._keys.current, self._rules, time.time())
        if self.revocations.revokes(login):
            raise BadToken("revoked", "the token was revoked")
        if auth.login is not None and auth.login.user != login.user:
            measures.TOKENS.labels("other_user").inc()
            reason = "logged in as somebody else already"
            return LoginResult(auth, VerbRefusal(code=ErrorCode.UNAUTHORIZED, reason=reason))
        _GOOD.inc()
        return LoginResult(AuthState(login, auth.bad_tokens))

    def _refused(self, auth: AuthState, bad: BadToken) -> LoginResult:
        measures.TOKENS.labels(bad.reason).inc()
        self._bad += 1
        # One line each time that the count has doubled, and never with the token.
        if self._bad & (self._bad - 1) == 0:
            logger.info("%d bad tokens so far, this one: %s", self._bad, bad)
        now = AuthState(auth.login, auth.bad_tokens + 1)
        expired = bad.reason == "expired"
        code = ErrorCode.TOKEN_EXPIRED if expired else ErrorCode.UNAUTHORIZED
        hang_up = now.bad_tokens >= self.settings.reader.bad_tokens
        return LoginResult(now, VerbRefusal(code=code, reason=str(bad)), hang_up)

    async def _load(self) -> None:
        """Read all revocations, and retry as long as the store can't be read."""
        backoff, failing = Backoff(base=0.2, cap=10.0), False
        while not self._loaded.is_set():
            try:
                await self._read_all()
                self._loaded.set()
            except Exception as exc:
                if not failing:
                    ours = not isinstance(exc, (StoreError, TimeoutError))
                    level = logging.ERROR if ours else logging.WARNING
                    what = "the revocations can't be read, trying again: %r"
                    logger.log(level, what, exc, exc_info=ours)
                failing = True
                await asyncio.sleep(backoff.failed(time.monotonic()))
        logger.info("%d users are revoked", len(self.revocations))

    async def _read_all(self) -> None:
        found: list[Envelope] = []
        before: str | None = None
        while len(found) < self.revocations.limit:
            async with asyncio.timeout(self.settings.store_timeout):
                page = await self.store.history(REVOKED, limit=_PAGE, before=before)
            # Pages are read from the newest to the oldest, and each has its oldest message first.
            found = page + found
            if len(page) < _PAGE:
                break
            before = page[0].id
        self.apply_revocations(found)
