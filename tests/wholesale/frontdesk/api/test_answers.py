"""Endpoints and history in the form that readers get."""

from __future__ import annotations

import orjson
from envelopes import envelope

from newsfabric.messages.envelope import identity_text
from newsfabric.settings import Node, Region
from newsfabric.store.sound import Sound
from wholesale.frontdesk.api.answers import EndpointsReply, history_document


def test_alternates_are_the_other_regions_frontdesks():
    node = (Node("n", "amqp://127.0.0.1", "http://127.0.0.1"),)
    dublin = Region(name="dublin", frontdesk_url="http://d.example/", client=node, core=node)
    assert EndpointsReply("oregon", (dublin,)).endpoints_document([]) == {
        "region": "oregon",
        "gateways": [],
        "alternates": [{"region": "dublin", "endpoints_url": "http://d.example/endpoints.json"}],
        "ttl": 5,
        "retry_ms": 2000,
    }


def test_history_is_what_readers_get_pushed_with_the_identity_for_the_position():
    stored = envelope(1, body=b'{"b":1.0}', key="story", version=2)
    document = history_document("news.breaking", "gold", Sound([stored]))
    assert orjson.loads(orjson.dumps(document)) == {
        "topic": "news.breaking",
        "messages": [
            {
                "type": "message",
                "topic": "news.breaking",
                "id": stored.id,
                "key": "story",
                "version": 2,
                "published": stored.published_ms,
                "origin": "oregon",
                "class": "gold",
                "identity": identity_text(stored.identity),
                "body": {"b": 1.0},
            }
        ],
    }
    assert b'"body":{"b":1.0}' in orjson.dumps(document)
