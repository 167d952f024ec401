"""The publisher for programs without asyncio, without a broker."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from localfabric.nodes.ports import free_ports
from newsfabric.errors import Unanswered
from newsfabric.publish import Publisher

SECONDS = 20


@pytest.fixture
def publisher() -> Publisher:
    (port,) = free_ports(1)
    url = f"amqp://cms:secret@127.0.0.1:{port}/%2F"
    return Publisher([url], app_id="cms", window=1, timeout=0.5)


def ends(work: Callable[[], object]) -> bool:
    """Return whether ``work`` returns, on a thread that doesn't block the test if it doesn't."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(SECONDS)
    return not thread.is_alive()


def test_closed_twice_it_is_closed(publisher: Publisher) -> None:
    with publisher:
        assert ends(publisher.close)
        assert ends(publisher.close)


def test_who_sends_after_the_end_learns_it(publisher: Publisher) -> None:
    publisher.close()
    for _ in range(2):
        with pytest.raises(RuntimeError, match="closed"):
            publisher.send("news.breaking", {"headline": "Hello"})


def test_who_waits_for_room_while_it_is_closed_learns_it(publisher: Publisher) -> None:
    first = publisher.send("news.breaking", {"headline": "Hello"})
    seen = []

    def send() -> None:
        try:
            seen.append(publisher.send("news.breaking", {"headline": "Again"}).exception())
        except RuntimeError as exc:
            seen.append(exc)

    waits = threading.Thread(target=send, daemon=True)
    waits.start()
    assert ends(publisher.close)
    waits.join(SECONDS)
    assert isinstance(first.exception(), Unanswered)
    # Either thread may have got the room first.
    assert [isinstance(one, Unanswered | RuntimeError) for one in seen] == [True]
