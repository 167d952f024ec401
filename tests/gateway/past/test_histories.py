"""Histories: from memory first, and from the store once for all."""

from __future__ import annotations

import pytest
from box_with_a_past import TOPIC, BegunBox, failures, message, messages, numbers

from newsfabric.errors import StoreError


async def test_a_history_is_of_memory_if_that_reaches_so_far(box: BegunBox) -> None:
    await box.store.write(messages(1, 2, 3, 4))
    verb = (TOPIC, 2, None)
    assert box.rewinds.history_from_memory(*verb) is None
    found = await box.rewinds.history_from_store(*verb)
    assert numbers(found.publications) == [3, 4]
    remembered = box.rewinds.history_from_memory(*verb)
    assert remembered is not None
    # The same objects, with the frames that others have had made.
    assert [a is b for a, b in zip(remembered.publications, found.publications, strict=True)] == [
        True, True
    ]  # fmt: skip
    assert box.store.reads == 1


async def test_a_history_goes_back_from_a_message(box: BegunBox) -> None:
    await box.store.write(messages(1, 2, 3, 4))
    await box.rewinds.try_to_seed(TOPIC)
    verb = (TOPIC, 2, message(4).id)
    found = box.rewinds.history_from_memory(*verb)
    assert found is not None
    assert numbers(found.publications) == [2, 3]


async def test_a_history_beyond_memory_is_of_the_store(box: BegunBox) -> None:
    await box.store.write(messages(*range(1, 10)))
    await box.rewinds.try_to_seed(TOPIC)
    for verb, expected in (
        ((TOPIC, 5, None), [5, 6, 7, 8, 9]),
        ((TOPIC, 2, message(8).id), [6, 7]),
        ((TOPIC, 2, message(5).id), [3, 4]),
    ):
        assert box.rewinds.history_from_memory(*verb) is None
        found = await box.rewinds.history_from_store(*verb)
        assert (numbers(found.publications), found.covered) == (expected, True)


async def test_a_history_of_all_there_is_is_of_memory_if_that_has_all(box: BegunBox) -> None:
    await box.store.write(messages(1, 2))
    await box.rewinds.try_to_seed(TOPIC)
    found = box.rewinds.history_from_memory(TOPIC, 100, None)
    assert found is not None
    assert numbers(found.publications) == [1, 2]


async def test_a_history_that_cant_be_read_is_a_counted_error(box: BegunBox) -> None:
    await box.store.write(messages(*range(1, 10)))
    await box.rewinds.try_to_seed(TOPIC)
    box.store.error = StoreError("corrupt")
    before = failures()
    with pytest.raises(StoreError, match="corrupt"):
        await box.rewinds.history_from_store(TOPIC, 5, None)
    with pytest.raises(StoreError, match="corrupt"):
        await box.rewinds.history_from_store("news.b", 1, None)
    assert failures() == before + 2
    # Remembered messages can still be had.
    found = await box.rewinds.history_from_store(TOPIC, 3, None)
    assert numbers(found.publications) == [7, 8, 9]
