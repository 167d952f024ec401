"""Request bodies being received: each is bounded, and so is their total."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.transports.bodies import BodyState, RequestBodies, RequestBody


def test_a_body_comes_in_pieces() -> None:
    bodies = RequestBodies(100)
    body = RequestBody(bodies, 10)
    for chunk in (b"abc", b"", b"defg"):
        body.append(chunk)
    assert (bytes(body.data), body.state, bodies.held) == (b"abcdefg", BodyState.TAKEN, 7)
    body.close()
    body.close()
    assert bodies.held == 0


def test_one_that_is_too_large_is_dropped_as_it_comes() -> None:
    bodies = RequestBodies(100)
    body = RequestBody(bodies, 10)
    for _ in range(3):
        body.append(b"12345678")
    assert (body.state, bodies.held) == (BodyState.TOO_LARGE, 0)


def test_without_room_for_all_the_largest_is_dropped() -> None:
    bodies = RequestBodies(10)
    first, second, third = (RequestBody(bodies, 10) for _ in range(3))
    first.append(b"1234")
    second.append(b"12345")
    # The new one itself would be the largest.
    third.append(b"123456")
    assert (third.state, bodies.held) == (BodyState.NO_ROOM, 9)
    third = RequestBody(bodies, 10)
    third.append(b"12")
    assert [one.state for one in (first, second, third)] == [
        BodyState.TAKEN, BodyState.NO_ROOM, BodyState.TAKEN,
    ]  # fmt: skip
    # Its bytes are received all the same, and dropped.
    second.append(b"6")
    assert (bytes(second.data), bodies.held) == (b"", 6)
    first.close()
    third.append(b"34567890")
    assert (third.state, bodies.held) == (BodyState.TAKEN, 10)


@given(st.lists(st.tuples(st.integers(0, 4), st.one_of(st.none(), st.binary(max_size=9)))))
def test_what_is_held_is_what_was_taken_and_never_more_than_there_is_room_for(
    steps: list[tuple[int, bytes | None]],
) -> None:
    bodies = RequestBodies(20)
    open_bodies = [RequestBody(bodies, 12) for _ in range(5)]
    for which, chunk in steps:
        if chunk is None:
            open_bodies[which].close()
            open_bodies[which] = RequestBody(bodies, 12)
        else:
            open_bodies[which].append(chunk)
        assert bodies.held == sum(len(body.data) for body in open_bodies) <= bodies.most
