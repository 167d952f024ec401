"""A frontdesk's answer about a message that its broker refused itself, or never got."""

from __future__ import annotations

from typing import Any

import pytest

from newsfabric.amqp import Message, Properties
from newsfabric.errors import Rejected, Returned, Unanswered
from wholesale.common.http import HttpProblem
from wholesale.frontdesk.api.awaiting import Receipts

MESSAGE = Message("news.x", b"{}", Properties(message_id="m-1"))


class FailingPublisher:
    """A publisher that raises ``error`` instead of publishing."""

    connected = True

    def __init__(self, error: Exception) -> None:
        self.error = error

    async def send(self, _message: Message) -> Any:
        raise self.error


def receipts(error: Exception) -> Receipts:
    return Receipts(FailingPublisher(error), most=1)  # type: ignore[arg-type]


async def test_what_a_broker_refuses_is_rejected_as_by_a_router() -> None:
    refused = Rejected("bad_property", "406 PRECONDITION_FAILED - invalid expiration '-1'")
    receipt = await receipts(refused).publish(MESSAGE)
    assert (receipt.status, receipt.reason) == ("rejected", "bad_property")
    assert receipt.detail == "406 PRECONDITION_FAILED - invalid expiration '-1'"
    assert receipt.message_id == "m-1"


@pytest.mark.parametrize(
    ("error", "status", "reason", "says"),
    [
        (Unanswered("m-1", 5, sent=True), 504, "no_receipt", "not known to be routed"),
        (Unanswered("m-1", 5, sent=False), 503, "unavailable", "nothing was sent"),
        (Returned("NO_ROUTE"), 503, "unavailable", "its client brokers give it back"),
    ],
)
async def test_it_says_whether_anything_was_sent(
    error: Exception, status: int, reason: str, says: str
) -> None:
    with pytest.raises(HttpProblem) as text:
        await receipts(error).publish(MESSAGE)
    detail = text.value.document["error"]
    assert (text.value.status, detail["reason"], detail["message_id"]) == (status, reason, "m-1")
    assert says in detail["detail"]
