"""Identities: new, under way, or routed before."""

from __future__ import annotations

import dataclasses

from core_cluster import EPOCH, message
from hypothesis import given
from hypothesis import strategies as st

from newsfabric.amqp import Delivery
from newsfabric.messages.envelope import Submission, receive
from wholesale.router.identities import DeliveryKind, Identified, KnownIdentities
from wholesale.router.jobs import Claim
from wholesale.router.window import IdentityWindow


@dataclasses.dataclass
class GenerationSource:
    """A source whose deliveries are stale if they are of an older generation."""

    generation: int = 1

    def ack(self, delivery: Delivery) -> None:
        raise AssertionError("nothing is acknowledged here")

    def is_stale(self, delivery: Delivery) -> bool:
        return delivery.generation != self.generation


def submission(name: str = "one", body: bytes = b"{}") -> Submission:
    return receive(message(body=body, message_id=name), now_ms=EPOCH)


def claim(tag: int = 1, channel: GenerationSource | None = None) -> Claim:
    source = channel or GenerationSource()
    return Claim(Delivery(message(), False, tag, source.generation), source, None, None)


def identify(
    identities: KnownIdentities,
    *,
    name: str = "one",
    body: bytes = b"{}",
    tag: int = 1,
    at: float = 0.0,
) -> Identified:
    return identities.identify(submission(name, body), claim(tag), topic_class="gold", now=at)


def test_a_message_is_new_once_and_then_under_way():
    identities = KnownIdentities(IdentityWindow())
    first = identify(identities)
    again = identify(identities, tag=2)
    assert (first.found, again.found) == (DeliveryKind.NEW, DeliveryKind.UNDER_WAY)
    assert first.job is again.job
    assert first.job is not None
    assert [c.delivery.tag for c in first.job.claims] == [1, 2]


def test_once_routed_it_is_known_with_the_time_of_its_first_id():
    identities = KnownIdentities(IdentityWindow())
    first = identify(identities)
    assert first.job is not None
    identities.routed(first.job, router_ms=EPOCH + 3, now=0.005)
    again = identify(identities, at=0.1)
    assert again == Identified(DeliveryKind.ROUTED, routed_ms=EPOCH + 3)
    assert len(identities) == 0


def test_once_given_up_the_next_one_is_new():
    identities = KnownIdentities(IdentityWindow())
    first = identify(identities)
    assert first.job is not None
    identities.given_up(first.job)
    assert identify(identities).found is DeliveryKind.NEW


def test_another_body_under_the_same_message_id_differs_while_under_way_and_after():
    identities = KnownIdentities(IdentityWindow())
    first = identify(identities)
    assert first.job is not None
    assert identify(identities, body=b"[]").differs
    assert not identify(identities).differs
    identities.routed(first.job, router_ms=EPOCH, now=0.0)
    assert identify(identities, body=b"[]").differs
    assert not identify(identities).differs


def test_claims_that_the_broker_has_taken_back_are_forgotten():
    identities = KnownIdentities(IdentityWindow())
    old, live = GenerationSource(), GenerationSource()
    first, _ = (
        identities.identify(submission(), each, topic_class="gold", now=0.0)
        for each in (claim(1, old), claim(2, live))
    )
    old.generation += 1
    identities.forget_stale_claims()
    assert first.job is not None
    assert [c.source for c in first.job.claims] == [live]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["come", "done", "fail"]))))
def test_no_message_is_new_twice_unless_it_was_given_up(steps: list[tuple[str, str]]):
    identities = KnownIdentities(IdentityWindow())
    under_way, routed = {}, set()
    for name, step in steps:
        if step == "come":
            found = identify(identities, name=name)
            expected = (
                DeliveryKind.UNDER_WAY
                if name in under_way
                else (DeliveryKind.ROUTED if name in routed else DeliveryKind.NEW)
            )
            assert found.found is expected
            if found.found is DeliveryKind.NEW:
                under_way[name] = found.job
        elif job := under_way.pop(name, None):
            if step == "done":
                identities.routed(job, router_ms=EPOCH, now=0.0)
                routed.add(name)
            else:
                identities.given_up(job)
        assert len(identities) == len(under_way)
