"""Decides logins: whom a token makes of a reader, on whichever engine and transport.

It knows the keys (:mod:`newsfabric.tokens.token_keys`) and who was revoked, and no reader: where
one stands comes in and goes out as a value. A revocation is a message on the fabric's own topic
(``_fabric.revoked``), which one that starts reads from the store; until then nobody is let in by
name. docs/design/0015 says why.

A token is decided at once, unless it was signed with a key that isn't known: then the keys are read
again first, at most every few seconds, and the reader's next verbs wait.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import orjson

from gateway import measures
from gateway.access import AuthState
from gateway.protocol import LogIn, Refusal
from gateway.settings import GatewaySettings
from gateway.tasks import Spawn
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
# So long a gateway that starts waits for the revocations before it lets readers in.
_START_SECONDS: Final = 2.0
_GOOD: Final = measures.TOKENS.labels("good")


def decode_revocation(envelope: Envelope) -> tuple[str, int]:
    """User and time (ms since the epoch) of a revocation; ValueError if it is none."""
    fields = mapping(orjson.loads(envelope.body), "a revocation")
    user, at_ms = text(fields, "user"), whole(fields, "at", MAX_MS)
    if not is_user(user):
        raise ValueError("a revocation names a user")
    return user, at_ms


class Revocations:
    """Users whose tokens aren't good any more, and since when. Pure.

    Of a user only the latest revocation counts; a token that was issued later is good again. Of
    more users than ``limit`` those heard of longest ago are forgotten first, and so are those whose
    tokens must have ended by now: ``ttl`` seconds after that. It goes by a clock that only goes on:
    one step of the machine's, a day forward and back, would make revoked tokens good.
    """

    def __init__(self, ttl: float, *, limit: int = 100_000) -> None:
        self._ttl = ttl
        self.limit = limit
        # When each was revoked, in ms, and when that was heard; in the order of the latter.
        self._heard: dict[str, tuple[int, float]] = {}

    def __len__(self) -> int:
        return len(self._heard)

    def add(self, user: str, at_ms: int, *, now_ms: int, now: float) -> bool:
        """``user`` was revoked at ``at_ms``, as is heard at ``now`` (seconds, monotonic), when the
        machine's clock says ``now_ms``. False if that is nothing new."""
        known = self._heard.get(user)
        if (known is not None and at_ms <= known[0]) or at_ms + self._ttl * 1000 < now_ms:
            return False
        self._heard.pop(user, None)
        self._heard[user] = at_ms, now
        while len(self._heard) > self.limit or self._oldest() < now - self._ttl:
            del self._heard[next(iter(self._heard))]
        return True

    def _oldest(self) -> float:
        return next(iter(self._heard.values()))[1]

    def revokes(self, login: Login) -> bool:
        """Whether ``login`` isn't good any more (RFC 7519's ``iat`` is a whole second at worst)."""
        known = self._heard.get(login.user)
        return known is not None and login.issued_ms <= known[0]

    def __iter__(self) -> Iterator[tuple[str, int]]:
        return ((user, at_ms) for user, (at_ms, _) in self._heard.items())


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """Where the reader stands now. ``refusal`` is None when the verb is obeyed.

    With ``hang_up`` that was one bad token too many.
    """

    auth: AuthState
    refusal: Refusal | None = None
    hang_up: bool = False


@dataclasses.dataclass(eq=False, repr=False)
class Gate:
    """Decides the logins of one gateway. :meth:`start` it, and :meth:`close` it.

    ``evict`` is told who was revoked when (ms): those of them who are here must go.
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
        """Whether everything is known that a login takes."""
        return self._keys is None or self._loaded.is_set()

    async def start(self) -> None:
        """Read keys and revocations; ConfigError if the file of keys is wrong.

        What can't be read now is tried again and again.
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
        """Let go of the keys; the tasks have ended."""
        if self._keys is not None:
            await self._keys.close()

    def apply_revocations(self, envelopes: Iterable[Envelope]) -> None:
        """Revocations have come, the oldest first."""
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
        """Whose ``token`` is, by what is known now; None if it is no good."""
        if self._keys is None or not self._loaded.is_set():
            return None
        try:
            login = verify(token, self._keys.current, self._rules, time.time())
        except BadToken:
            return None
        return None if self.revocations.revokes(login) else login.user

    def decide(self, auth: AuthState, verb: LogIn) -> Verdict | None:
        """What ``verb`` makes of a reader with ``auth``; None: :meth:`decide_later`."""
        if (refusal := self._not_now(auth, verb)) is not None:
            return Verdict(auth, refusal)
        try:
            return self._log_in(auth, verb)
        except BadToken as bad:
            return None if bad.reason == "unknown_key" else self._refused(auth, verb, bad)

    async def decide_later(self, auth: AuthState, verb: LogIn) -> Verdict:
        """The same, after the keys were read again, if that may be done now."""
        assert self._keys is not None
        await self._keys.look_again()
        try:
            return self._log_in(auth, verb)
        except BadToken as bad:
            return self._refused(auth, verb, bad)

    async def decide_at_last(self, auth: AuthState, verb: LogIn) -> Verdict:
        """The same, for whoever can wait."""
        return self.decide(auth, verb) or await self.decide_later(auth, verb)

    def _not_now(self, auth: AuthState, verb: LogIn) -> Refusal | None:
        if self._keys is None:
            reason = "logins aren't set up here"
            return Refusal(code=ErrorCode.UNAUTHORIZED, reason=reason, ref=verb.ref)
        if not self._loaded.is_set():
            reason = "nobody can log in yet"
            return Refusal(code=ErrorCode.INTERNAL, reason=reason, temporary=True, ref=verb.ref)
        if verb.refresh and auth.login is None:
            return Refusal(code=ErrorCode.UNAUTHORIZED, reason="log in first", ref=verb.ref)
        return None

    def _log_in(self, auth: AuthState, verb: LogIn) -> Verdict:
        assert self._keys is not None
        login = verify(verb.token, self._keys.current, self._rules, time.time())
        if self.revocations.revokes(login):
            raise BadToken("revoked", "the token was revoked")
        if auth.login is not None and auth.login.user != login.user:
            measures.TOKENS.labels("other_user").inc()
            reason = "logged in as somebody else already"
            return Verdict(auth, Refusal(code=ErrorCode.UNAUTHORIZED, reason=reason, ref=verb.ref))
        _GOOD.inc()
        return Verdict(AuthState(login, auth.bad_tokens))

    def _refused(self, auth: AuthState, verb: LogIn, bad: BadToken) -> Verdict:
        measures.TOKENS.labels(bad.reason).inc()
        self._bad += 1
        # A line each time that the count has doubled; never the token.
        if self._bad & (self._bad - 1) == 0:
            logger.info("%d bad tokens so far, this one: %s", self._bad, bad)
        now = AuthState(auth.login, auth.bad_tokens + 1)
        expired = bad.reason == "expired"
        code = ErrorCode.TOKEN_EXPIRED if expired else ErrorCode.UNAUTHORIZED
        refusal = Refusal(code=code, reason=str(bad), ref=verb.ref)
        return Verdict(now, refusal, hang_up=now.bad_tokens >= self.settings.reader.bad_tokens)

    async def _load(self) -> None:
        """Read all revocations that still matter, however long the store stays away."""
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
            # The pages come from the newest to the oldest, and each has its oldest first.
            found = page + found
            if len(page) < _PAGE:
                break
            before = page[0].id
        self.apply_revocations(found)
