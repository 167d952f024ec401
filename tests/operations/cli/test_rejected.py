"""``newsfabric rejected`` over the management API of several core brokers."""

from __future__ import annotations

from typing import Any

import pytest

from newsfabric.errors import ManagementError
from newsfabric.settings import Node, Region
from operations.cli import rejected
from operations.cli.rejected import each_once, show_rejected

REGION = Region(
    name="oregon",
    frontdesk_url="http://127.0.0.1:1",
    client=(Node("oregon-client-1", "amqp://c", "http://c"),),
    core=tuple(Node(f"oregon-core-{n}", f"amqp://b{n}", f"http://b{n}") for n in (1, 2)),
)


def entry(at: int, message_id: str) -> dict[str, Any]:
    headers = {"rejected_at": at, "reason": "bad_body", "detail": "no JSON", "topic": "news.x"}
    properties = {"headers": headers, "message_id": message_id, "app_id": None}
    return {"payload": "x", "payload_bytes": 1, "properties": properties}


class RejectedQueues:
    """The messages in each broker's queue, by the URL of its management API; None: no reply."""

    def __init__(self) -> None:
        self.found: dict[str, list[dict[str, Any]] | None] = {}

    def __call__(self, url: str, *_: Any, **__: Any) -> _Management:
        return _Management(self.found[url])


class _Management:
    def __init__(self, found: list[dict[str, Any]] | None) -> None:
        self._found = found

    async def __aenter__(self) -> _Management:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Release nothing."""

    async def peek(self, _queue: str, count: int) -> list[dict[str, Any]]:
        if self._found is None:
            raise ManagementError("nobody there")
        return self._found[:count]


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> RejectedQueues:
    made = RejectedQueues()
    monkeypatch.setattr(rejected, "Management", made)
    return made


async def shown(capsys: pytest.CaptureFixture[str], limit: int = 20) -> tuple[list[str], str]:
    await show_rejected(REGION, limit=limit, as_json=True)
    out, err = capsys.readouterr()
    return [line.split('"message_id": "')[1].split('"')[0] for line in out.splitlines()], err


async def test_what_several_brokers_keep_is_shown_once_the_oldest_first(
    brokers: RejectedQueues, capsys: pytest.CaptureFixture[str]
):
    brokers.found = {
        "http://b1": [entry(1, "a"), entry(3, "c")],
        "http://b2": [entry(2, "b"), entry(3, "c")],
    }
    assert await shown(capsys) == (["a", "b", "c"], "")
    assert await shown(capsys, limit=1) == (["a"], "")


async def test_a_broker_that_is_away_is_named_and_the_other_is_read(
    brokers: RejectedQueues, capsys: pytest.CaptureFixture[str]
):
    brokers.found = {"http://b1": None, "http://b2": [entry(1, "a")]}
    assert await shown(capsys) == (["a"], "oregon-core-1: nobody there\n")


async def test_when_none_answers_that_is_an_error(brokers: RejectedQueues):
    brokers.found = {"http://b1": None, "http://b2": None}
    with pytest.raises(ManagementError, match="nobody there"):
        await show_rejected(REGION, limit=20, as_json=False)


def test_what_has_no_time_comes_first():
    assert each_once([{"rejected_at": 5}, {"rejected_at": None}]) == [
        {"rejected_at": None},
        {"rejected_at": 5},
    ]
