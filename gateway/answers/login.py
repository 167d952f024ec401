"""The verbs ``login`` and ``refresh``."""

from __future__ import annotations

import dataclasses
from typing import Self

from gateway.answers.authenticator import LoginResult
from gateway.answers.verb import Pending, Port, Verb, VerbContext, refusal_push
from gateway.wire.fields import VerbFields
from gateway.wire.frames import encode_push
from newsfabric.closing import INVALID_TOKEN


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LogIn(Verb):
    """A login with ``token``. ``repr`` hides the token, which must not be logged.

    ``refresh``: the login of the same user lasts longer.
    """

    token: str = dataclasses.field(repr=False)
    refresh: bool = False

    @classmethod
    def parse(cls, fields: VerbFields) -> Self:
        """See :meth:`.Verb.parse`."""
        refresh = fields.values["action"] == "refresh"
        return cls(token=fields.text("token"), refresh=refresh, ref=fields.ref)

    def answer(self, context: VerbContext, reader: Port) -> Pending | None:
        """Answer now, or after the keys were read again."""
        result = context.authenticator.decide(reader.auth, self.token, refresh=self.refresh)
        if result is None:
            return self._answer_later(context, reader)
        self._identify(reader, result)
        return None

    async def _answer_later(self, context: VerbContext, reader: Port) -> None:
        self._identify(reader, await context.authenticator.decide_later(reader.auth, self.token))

    def _identify(self, reader: Port, result: LoginResult) -> None:
        if result.refusal is not None:
            push = refusal_push(reader, result.refusal, self)
        else:
            login = result.auth.login
            assert login is not None
            kind = "refreshed" if self.refresh else "logged_in"
            push = encode_push(kind, ref=self.ref, user=login.user, expires_at=login.expires_ms)
        reader.identify(result.auth, push)
        if result.hang_up:
            reader.close(INVALID_TOKEN)
