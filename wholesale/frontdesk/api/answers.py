"""The frontdesk's replies, as values: endpoints, history, errors. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Final

import orjson

from newsfabric.messages.envelope import identity_text
from newsfabric.messages.pushes import message_fields
from newsfabric.settings import Region
from newsfabric.store.sound import Sound
from newsfabric.topics import TopicClass
from wholesale.frontdesk.presence.boxes import OfferedBox

# Seconds for which a reply may be reused; as long as a silent box counts as present.
ENDPOINTS_TTL: Final = 5
RETRY_MS: Final = 2000
# Above 0, because some implementations of a weighted choice handle 0 wrongly.
LEAST_WEIGHT: Final = 0.0001


@dataclasses.dataclass(frozen=True, slots=True)
class EndpointsReply:
    """The reply to ``/endpoints.json`` for ``region``, with the ``others`` as alternates."""

    region: str
    others: tuple[Region, ...]

    def endpoints_document(self, offers: Sequence[OfferedBox]) -> dict[str, Any]:
        """Return the reply. Readers choose from ``gateways`` by ``weight``.

        Without gateways they ask ``alternates`` in their order, and again in ``retry_ms``.
        """
        return {
            "region": self.region,
            "gateways": [
                {
                    "sockjs_url": offer.report.sockjs_url,
                    "websocket_url": offer.report.websocket_url,
                    "sse_url": offer.report.sse_url,
                    "weight": max(LEAST_WEIGHT, round(offer.weight, 4)),
                }
                for offer in offers
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


def history_document(topic: str, topic_class: TopicClass, found: Sound) -> dict[str, Any]:
    """Return the reply to ``/history``: messages as readers get them, with their ``identity``.

    Readers need the identity for positions. If some messages can't be read, ``missing`` has their
    ids (:mod:`newsfabric.store.sound`).
    """
    return {
        "topic": topic,
        "messages": [
            message_fields(envelope, topic_class)
            | {
                "identity": identity_text(envelope.identity),
                "body": orjson.Fragment(envelope.body),
            }
            for envelope in found.envelopes
        ],
    } | ({"missing": found.missing} if found.missing else {})
