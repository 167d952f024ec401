"""A router's answers to ``newsfabric trace``: from its memory, and from its store.

``/trace/ID`` is memory alone. ``/stored/ID?topic=TOPIC`` reads one millisecond of that topic, the
one in the id. So it finds every copy that got that very id, whichever router stored it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from newsfabric.errors import StoreError
from newsfabric.messages.envelope import Envelope, identity_of_id, ms_of_id
from newsfabric.process.service import trace_route
from newsfabric.store import Store
from newsfabric.tracing.races import Races
from wholesale.common.http import RETRY, HttpProblem, JsonHandler

if TYPE_CHECKING:
    from wholesale.common.core_service import CoreSettings

# More than all routers of a fabric store of one topic in a millisecond.
_MOST: Final = 1000


class StoredHandler(JsonHandler):
    """The handler of ``/stored/ID?topic=TOPIC``: the rows of one message."""

    def initialize(self, settings: CoreSettings, store: Store) -> None:
        """Set the arguments of the route; answers name the router's region. Called by Tornado."""
        self._settings, self._store = settings, store

    async def get(self, text: str) -> None:
        """Reply 200 with the rows, if any; 400 without a topic, 503 while the store is away."""
        identity, ms = identity_of_id(text), ms_of_id(text)
        topic = self.get_query_argument("topic")
        try:
            found = await self._store.since(topic, from_ms=ms, to_ms=ms + 1, limit=_MOST)
        except StoreError as exc:
            raise HttpProblem(503, "store_away", str(exc), headers=RETRY) from exc
        rows = [_row(envelope) for envelope in found if envelope.identity == identity]
        self.write_document({"region": self._settings.region, "stored": rows})


def trace_routes(settings: CoreSettings, races: Races, store: Store) -> list[Any]:
    """Return Tornado routes for ``/trace/ID`` and ``/stored/ID?topic=TOPIC``."""
    return [
        trace_route("router", settings.name, settings.region, races.sightings),
        # As envelope._ID; all other paths get a 404.
        (
            r"/stored/([0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12})",
            StoredHandler,
            {"settings": settings, "store": store},
        ),
    ]


def _row(envelope: Envelope) -> dict[str, Any]:
    return {
        "id": envelope.id,
        "topic": envelope.topic,
        "message_id": envelope.message_id,
        "published_ms": envelope.published_ms,
        "origin": envelope.origin,
        "router": envelope.router,
        "epoch": envelope.epoch,
        "seq": envelope.seq,
    }
