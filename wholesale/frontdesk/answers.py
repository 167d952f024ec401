"""What the frontdesk answers, as values: endpoints, history, errors. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, Final

import orjson

from newsfabric.control import LoadReport
from newsfabric.envelope import Envelope
from newsfabric.pushes import message_fields
from newsfabric.settings import Region
from newsfabric.topics import TopicClass

# Seconds for which an answer may be reused; as long as a silent box is believed in.
ENDPOINTS_TTL: Final = 5
RETRY_MS: Final = 2000


@dataclasses.dataclass(frozen=True, slots=True)
class Endpoints:
    """The answer of ``/endpoints.json`` for ``region``, beside ``others``."""

    region: str
    others: tuple[Region, ...]

    def document(self, boxes: Sequence[LoadReport]) -> dict[str, Any]:
        """Readers try ``gateways`` in order, then ``alternates``, then again in ``retry_ms``."""
        return {
            "region": self.region,
            "gateways": [
                {
                    "sockjs_url": box.sockjs_url,
                    "websocket_url": box.websocket_url,
                    "sse_url": box.sse_url,
                }
                for box in boxes
            ],
            "alternates": [
                {
                    "region": other.name,
                    "endpoints_url": f"{other.frontdesk_url.rstrip('/')}/endpoints.json",
                }
                for other in self.others
            ],
            "ttl": ENDPOINTS_TTL,
            "retry_ms": RETRY_MS,
        }


def history_document(
    topic: str, topic_class: TopicClass, envelopes: Iterable[Envelope]
) -> dict[str, Any]:
    """The answer of ``/history``: messages as readers get them pushed, without a position."""
    return {
        "topic": topic,
        "messages": [
            # Routers let nothing but JSON into the store.
            message_fields(envelope, topic_class) | {"body": orjson.Fragment(envelope.body)}
            for envelope in envelopes
        ],
    }
