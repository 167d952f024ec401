"""Histories: from memory first, and from the store once for all."""

from __future__ import annotations

import pytest
from box_with_a_past import TOPIC, BegunBox, failures, message, messages, numbers

from gateway.wire.protocol import History
from newsfabric.errors import StoreError


async def test_a_history_is_of_memory_if_that_reaches_so_far(box: BegunBox) -> None:
    await box.store.write(messages(1, 2, 3, 4))
    verb = History(topic=TOPIC, limit=2)
    assert box.past.recall_history(verb) is None
    found = await box.past.recover_history(verb)
    assert numbers(found.publications) == [3, 4]
    remembered = box.past.recall_history(verb)
    assert remembered is not None
    # The same objects, with the frames that others have had made.
    assert [a is b for a, b in zip(remembered.publications, found.publications, strict=True)] == [
        True, True
    ]  # fmt: skip
    assert box.store.reads == 1


async def test_a_history_goes_back_from_a_message(box: BegunBox) -> None:
    await box.store.write(messages(1, 2, 3, 4))
    await box.past.try_to_warm(TOPIC)
    verb = History(topic=TOPIC, limit=2, before=message(4).id)
    found = box.past.recall_history(verb)
    assert found is not None
    assert numbers(found.publications) == [2, 3]


async def test_a_history_beyond_memory_is_of_the_store(box: BegunBox) -> None:
    await box.store.write(messages(*range(1, 10)))
    await box.past.try_to_warm(TOPIC)
    for verb, expected in (
        (History(topic=TOPIC, limit=5), [5, 6, 7, 8, 9]),
        (History(topic=TOPIC, limit=2, before=message(8).id), [6, 7]),
        (History(topic=TOPIC, limit=2, before=message(5).id), [3, 4]),
    ):
        assert box.past.recall_history(verb) is None
        found = await box.past.recover_history(verb)
        assert (numbers(found.publications), found.covered) == (expected, True)


async def test_a_history_of_all_there_is_is_of_memory_if_that_has_all(box: BegunBox) -> None:
    await box.store.write(messages(1, 2))
    await box.past.try_to_warm(TOPIC)
    found = box.past.recall_history(History(topic=TOPIC, limit=100))
    assert found is not None
    assert numbers(found.publications) == [1, 2]


async def test_a_history_that_cant_be_read_is_a_counted_error(box: BegunBox) -> None:
    await box.store.write(messages(*range(1, 10)))
    await box.past.try_to_warm(TOPIC)
    box.store.error = StoreError("spoilt")
    before = failures()
    with pytest.raises(StoreError, match="spoilt"):
        await box.past.recover_history(History(topic=TOPIC, limit=5))
    with pytest.raises(StoreError, match="spoilt"):
        await box.past.recover_history(History(topic="news.b", limit=1))
    assert failures() == before + 2
    # Remembered messages can still be had.
    found = await box.past.recover_history(History(topic=TOPIC, limit=3))
    assert numbers(found.publications) == [7, 8, 9]
