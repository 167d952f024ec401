"""The way of one message, put together from all processes' replies."""

from __future__ import annotations

from typing import Any

from newsfabric.messages.envelope import id_of, identity_of, identity_text
from newsfabric.tracing.sightings import SeenCopy, Sighting, Sightings
from operations.message_trace import (
    Evidence,
    TraceAnswer,
    candidates,
    hop_text,
    identities,
    ids,
    refusals,
    trace,
)

NOW = 1_800_000_000_000
IDENTITY = 0x1234567890ABCDEF123
ID = id_of(NOW + 4, IDENTITY)
FAR_ID = id_of(NOW + 60, IDENTITY)
NOTHING = Sightings()


def _asked(kind: str, name: str, ring: Sightings | None, text: str = ID) -> TraceAnswer:
    region = name.partition("-")[0]
    answer = None if ring is None else ring.sightings_document(text)
    return TraceAnswer(kind=kind, name=name, region=region, answer=answer)


def _router(at: int, *ways: str) -> Sightings:
    ring = Sightings()
    copies = [SeenCopy(NOW + at + n, (way,)) for n, way in enumerate(ways)]
    seen = Sighting(IDENTITY, "news.breaking", "story-17", NOW, copies[:1])
    ring.first(seen)
    for copy in copies[1:]:
        ring.again(IDENTITY, copy)
    seen.id, seen.epoch, seen.seq = ID, 1, 12
    seen.steps.update(stored=NOW + at + 4, routed=NOW + at + 6)
    return ring


def _gateway(at: int, *copies: tuple[str, int, str]) -> Sightings:
    ring = Sightings()
    found = [
        SeenCopy(NOW + at + n, tuple(way.split()), ID, router, 1, seq)
        for n, (router, seq, way) in enumerate(copies)
    ]
    seen = Sighting(IDENTITY, "news.breaking", "story-17", NOW, found[:1])
    ring.first(seen)
    for copy in found[1:]:
        ring.again(IDENTITY, copy)
    seen.steps["delivered"] = NOW + at + 9
    return ring


def _evidence(asked: list[TraceAnswer], **more: Any) -> Evidence:
    return Evidence(**{"asked": asked, "stored": {}, "rejected": [], **more})


def test_the_hops_come_in_the_order_of_their_times_and_the_winner_is_named() -> None:
    asked = [
        _asked(
            "gateway",
            "oregon-retail-1-gateway",
            _gateway(
                12, ("oregon-router-1", 12, "postoffice.2"), ("oregon-router-1", 12, "postoffice.1")
            ),
        ),
        _asked("router", "oregon-router-1", _router(2, "publish.oregon.2", "publish.oregon.1")),
        _asked("router", "oregon-router-2", NOTHING),
    ]
    found = trace(ID, _evidence(asked, stored={"oregon": [{"id": ID}]}))
    assert found["found"]
    assert (found["identity"], found["message_id"]) == (identity_text(IDENTITY), "story-17")
    steps = [(hop["after_ms"], hop["name"], hop_text(hop)) for hop in found["hops"]]
    assert steps == [
        (0, "", "published (the publisher's clock, else its broker's)"),
        (2, "oregon-router-1", "came by publish.oregon.2: won, first of 2"),
        (3, "oregon-router-1", "came by publish.oregon.1: a copy, 1 ms behind"),
        (6, "oregon-router-1", "stored"),
        (8, "oregon-router-1", "confirmed by postoffice and outbound as number 12"),
        (
            12,
            "oregon-retail-1-gateway",
            "oregon-router-1 number 12 came by postoffice.2: won, first of 2",
        ),
        (
            13,
            "oregon-retail-1-gateway",
            "oregon-router-1 number 12 came by postoffice.1: a copy, 1 ms behind",
        ),
        (21, "oregon-retail-1-gateway", "given to its readers"),
    ]
    assert found["not_seen"] == []


def test_who_hasnt_seen_it_and_who_doesnt_answer_is_reported() -> None:
    asked = [
        _asked("router", "oregon-router-1", _router(2, "publish.oregon.1")),
        _asked("router", "oregon-router-2", NOTHING),
        _asked("router", "dublin-router-1", NOTHING),
        _asked("gateway", "dublin-retail-1-gateway", NOTHING),
        _asked("gateway", "oregon-retail-1-gateway", None),
    ]
    found = trace(ID, _evidence(asked))
    assert [(each["name"], each["why"].split(";")[0]) for each in found["not_seen"]] == [
        ("dublin-router-1", "no router of the region had it"),
        ("dublin-retail-1-gateway", "it didn't come, or too long ago"),
        ("oregon-retail-1-gateway", "it doesn't answer"),
    ]


def test_what_only_the_stores_remember_is_found_by_its_id() -> None:
    row = {"id": ID, "topic": "news.breaking", "message_id": None, "published_ms": NOW}
    asked = [_asked("router", "oregon-router-1", NOTHING)]
    assert ids(asked, ID) == [ID]
    found = trace(ID, _evidence(asked, stored={"oregon": [row], "dublin": None}))
    assert found["found"]
    assert (found["identity"], found["topic"]) == (identity_text(IDENTITY), "news.breaking")
    assert found["stored"] == {"oregon": [row], "dublin": None}
    assert found["hops"] == []


def test_every_id_that_was_seen_is_looked_for_in_the_stores() -> None:
    far = _router(50, "publish.oregon.1")
    seen = far.get(IDENTITY)
    assert seen is not None
    seen.id = FAR_ID
    asked = [
        _asked("router", "oregon-router-1", _router(2, "publish.oregon.1"), "story-17"),
        _asked("router", "dublin-router-1", far, "story-17"),
    ]
    assert ids(asked, "story-17") == [ID, FAR_ID]


def test_a_message_that_nobody_knows_isnt_found() -> None:
    found = trace("beef", _evidence([_asked("router", "oregon-router-1", NOTHING, "beef")]))
    assert not found["found"]
    assert found["ids"] == []
    assert found["remembered"] == [
        {"kind": "router", "name": "oregon-router-1", "messages": 0, "since_ms": None}
    ]


def test_an_id_that_may_be_several_messages_names_them() -> None:
    ring = _router(2, "publish.oregon.1")
    ring.first(Sighting(IDENTITY + 1, "news.world", None, NOW, [SeenCopy(NOW, ())]))
    asked = [_asked("router", "oregon-router-1", ring, "1234")]
    assert len(identities(asked)) == 2
    assert [each["topic"] for each in candidates(asked)] == ["news.world", "news.breaking"]


def test_a_refused_message_is_found_by_what_its_publisher_called_it() -> None:
    refused = {"message_id": "story-18", "app_id": "desk", "reason": "not_json"}
    nameless = {"message_id": None, "app_id": None, "reason": "too_large"}
    identity = identity_of(
        app_id="desk", message_id="story-18", topic="t", published_ms=1, body=b"x"
    )
    entries = [nameless, refused]
    assert refusals("story-18", entries) == [refused]
    assert refusals(identity_text(identity), entries) == [refused]
    assert refusals("story", entries) == []
    assert trace("story-18", _evidence([], rejected=[refused]))["found"]
