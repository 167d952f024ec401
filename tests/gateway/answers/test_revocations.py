"""Revoked users, and the time for which a revocation is remembered."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from envelopes import envelope

from gateway.answers.authenticator import Revocations, decode_revocation
from newsfabric.messages.control import revocation
from newsfabric.tokens import Login
from newsfabric.topics import REVOKED

HOUR = 3_600_000


def heard(revoked: Revocations, user: str, at_ms: int, *, at: float = 0.0) -> bool:
    """Report at once that ``user`` was revoked at ``at_ms``; return whether that is news."""
    return revoked.add(user, at_ms, now_ms=at_ms, now=at)


def login(user: str = "42", issued_ms: int = 0) -> Login:
    return Login(user=user, issued_ms=issued_ms, expires_ms=0, ends_ms=0)


def test_tokens_of_until_then_are_revoked_and_later_ones_are_not() -> None:
    revoked = Revocations(3600.0)
    assert heard(revoked, "42", 1_000)
    assert revoked.revokes(login(issued_ms=0))
    assert revoked.revokes(login(issued_ms=1_000))
    assert not revoked.revokes(login(issued_ms=1_001))
    assert not revoked.revokes(login("7"))


def test_of_a_user_the_latest_counts_whatever_the_order() -> None:
    revoked = Revocations(3600.0)
    assert heard(revoked, "42", 2_000)
    assert not heard(revoked, "42", 1_000)
    assert not heard(revoked, "42", 2_000)
    assert heard(revoked, "42", 3_000)
    assert list(revoked) == [("42", 3_000)]


def test_what_no_token_can_have_outlived_is_forgotten() -> None:
    revoked = Revocations(3600.0)
    heard(revoked, "1", 0, at=0.0)
    heard(revoked, "2", HOUR, at=3_600.0)
    assert len(revoked) == 2
    heard(revoked, "3", HOUR + 1, at=3_600.5)
    assert [user for user, _ in revoked] == ["2", "3"]
    assert not revoked.add("4", 0, now_ms=HOUR + 1, now=3_600.5)


def test_a_step_of_the_machines_clock_makes_no_revoked_token_good() -> None:
    revoked = Revocations(3600.0)
    heard(revoked, "1", HOUR, at=10.0)
    # A day ahead, and back.
    heard(revoked, "2", 25 * HOUR, at=20.0)
    heard(revoked, "3", HOUR + 20, at=30.0)
    assert [user for user, _ in revoked] == ["1", "2", "3"]


def test_beyond_the_limit_the_oldest_go() -> None:
    revoked = Revocations(3600.0, limit=2)
    for n in range(4):
        heard(revoked, str(n), n)
    assert list(revoked) == [("2", 2), ("3", 3)]


def test_a_revocation_is_a_message_that_can_be_read_again() -> None:
    message = revocation("42", 1_000)
    assert message.topic == REVOKED
    assert decode_revocation(envelope(1, topic=REVOKED, body=message.body)) == ("42", 1_000)


@pytest.mark.parametrize(
    "body",
    [7, [], {}, {"user": "42"}, {"user": "", "at": 1}, {"user": "#", "at": 1},
     {"user": "42", "at": True}, {"user": "42", "at": -1}, {"user": "42", "at": "1"}],
)  # fmt: skip
def test_what_is_no_revocation_is_a_value_error(body: Any) -> None:
    with pytest.raises(ValueError, match=r"revocation|user must be|at must be"):
        decode_revocation(envelope(1, topic=REVOKED, body=orjson.dumps(body)))
