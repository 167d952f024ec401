"""``GET /history?topic=…&after=POSITION``: a reader's missed messages in pages, over plain HTTP.

For readers that don't stay connected, and for backlogs too large for a resume. The request asks for
the same messages as ``subscribe`` with a position, without the subscription. They are in the order
of routing, not of arrival here, because pages have to fit together on any gateway.
"""

from __future__ import annotations

import contextlib

import orjson

from gateway.past.paging import page
from gateway.past.replay import Replay
from gateway.transports.streaming import PageHandler
from gateway.wire.frames import Framing, with_identity
from gateway.wire.protocol import VerbRefusal
from gateway.wire.publication import Publication
from newsfabric.closing import ErrorCode
from newsfabric.messages.envelope import identity_of_id
from newsfabric.numbers import whole_number

_LIMIT = 100
_MOST = 1_000
_TOO_OFTEN = VerbRefusal(
    code=ErrorCode.TOO_MANY_REQUESTS, reason="this address has asked too often", temporary=True
)


class CatchUpHandler(PageHandler):
    """The answer: ``{"topic", "recovered", "more", "position", "messages"}``, with a gap also
    ``"reason"``. The next page is ``after`` that position.

    Without ``after`` there are no messages, but the position to begin with.
    """

    async def get(self) -> None:
        """Answer a page, or the ``error`` push with its status: 400, 401, 403, 404, 429 or 503."""
        if not self._is_welcome():
            return
        wait = self.core.history_pace.seconds_to_wait(
            self.request.remote_ip or "", self.core.clock()
        )
        if wait:
            self._refuse_verb(_TOO_OFTEN, retry_after=wait)
            return
        auth = await self._authenticate()
        if auth is None:
            return
        after = self.get_query_argument("after", None) or None
        topic = self.get_query_argument("topic", None)
        asked = self._subscribe(auth, topic=topic, position=after)
        if isinstance(asked, VerbRefusal):
            self._refuse_verb(asked)
            return
        limit = self._limit()
        if limit is None:
            return
        core, token = self.core, asked.position
        missed = Replay([])
        if token is not None:
            missed = await core.resumes.missed(asked.topic, token)
            core.resumes.count_answer(asked.topic, missed.gap)
        taken, position = page(
            missed, token, core.hub, limit=limit, most_bytes=core.settings.replay_bytes
        )
        answer = {
            "topic": asked.topic,
            "recovered": token is not None and missed.gap is None,
            "more": len(taken) < len(missed.publications),
            "position": position,
        }
        if missed.gap is not None:
            answer["reason"] = missed.gap.value
        head = orjson.dumps(answer)
        messages = b",".join(map(_row, taken))
        self.set_header("Content-Type", "application/json")
        self.set_header("Cache-Control", "no-store")
        self.finish(head[:-1] + b',"messages":[' + messages + b"]}")

    def _limit(self) -> int | None:
        text = self.get_query_argument("limit", str(_LIMIT), strip=False)
        with contextlib.suppress(ValueError):
            return whole_number(text, 1, _MOST)
        reason = f"limit must be a whole number from 1 to {_MOST}"
        self._refuse_verb(VerbRefusal(code=ErrorCode.BAD_REQUEST, reason=reason))
        return None


def _row(publication: Publication) -> bytes:
    mark = publication.mark
    identity = publication.envelope.identity if mark is None else identity_of_id(mark.id)
    return with_identity(publication.frame(Framing.RAW), identity)
