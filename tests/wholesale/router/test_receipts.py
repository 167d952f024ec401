"""Rejections and receipts as they are sent."""

from __future__ import annotations

import dataclasses

import pytest
from core_cluster import EPOCH, message

from newsfabric.amqp import Delivery, Message
from newsfabric.amqp.fields import MAX_TABLE_BYTES, OVERSIZE, decode_table, encode_table
from newsfabric.amqp.message import Undecodable
from newsfabric.amqp.wire import encode_publish
from newsfabric.errors import Rejected
from newsfabric.messages import control
from newsfabric.messages.envelope import id_of, identity_text, receive
from wholesale.router.jobs import Claim
from wholesale.router.receipts import ReceiptMaker, readable

RECEIPTS = ReceiptMaker("oregon", "oregon-router-1")
PROBLEM = Rejected("not_json", "unexpected end of data")


def rejected(refused: Message, *, redelivered: bool = False) -> list[Message]:
    delivery = Delivery(refused, redelivered, 1, 1)
    publishes = RECEIPTS.rejected(delivery, PROBLEM, now_ms=EPOCH)
    return [pending.message for pending in publishes]


def test_a_rejected_message_keeps_its_bytes_and_properties_and_says_why():
    refused = message(body=b"\xff{", app_id="cms", type="story", headers={"key": "a", "own": 1})
    (evidence,) = rejected(refused)
    assert (evidence.topic, evidence.body) == ("not_json", b"\xff{")
    assert (evidence.properties.app_id, evidence.properties.type) == ("cms", "story")
    assert evidence.properties.headers == {
        "key": "a",
        "own": 1,
        "reason": "not_json",
        "detail": "unexpected end of data",
        "topic": "news.world",
        "region": "oregon",
        "router": "oregon-router-1",
        "rejected_at": EPOCH,
    }


def test_nothing_of_it_acts_on_the_broker_again():
    refused = message(expiration="5", headers={"CC": ["news.b"], "BCC": ["news.c"]})
    (evidence,) = rejected(refused)
    assert evidence.properties.expiration is None
    assert not {"CC", "BCC"} & evidence.properties.headers.keys()


@pytest.mark.parametrize(
    "headers",
    [
        {OVERSIZE: Undecodable(b"x" * MAX_TABLE_BYTES)},
        {str(n): None for n in range(3000)},
        # Octets, which are longer when they are sent again.
        decode_table(b"\1xA" + (16_000).to_bytes(4, "big") + b"b\0" * 8000),
    ],
)
def test_why_it_was_rejected_can_be_read_whatever_its_headers_hold(headers: dict[str, object]):
    (evidence,) = rejected(message("\udcff" * 255, headers=headers, reply_to=None))
    read = decode_table(encode_table(evidence.properties.headers)[4:])
    assert read["reason"] == "not_json"
    assert isinstance(read[OVERSIZE], bytes)
    frames = encode_publish(1, "rejected", evidence, mandatory=False, frame_max=65_536)
    assert len(frames) < 20_000


def test_redelivered_it_goes_out_plain_because_its_headers_may_have_broken_the_link():
    (evidence,) = rejected(message(body=b"{", headers={"own": 1}), redelivered=True)
    assert evidence.body == b"{"
    assert evidence.properties.headers["reason"] == "not_json"
    assert "own" not in evidence.properties.headers


def test_a_receipt_goes_to_whoever_asked_for_one():
    _, receipt = rejected(message(body=b"{", reply_to="me", correlation_id="c1", message_id="m1"))
    assert (receipt.topic, receipt.properties.correlation_id) == ("me", "c1")
    decoded = control.decode_receipt(receipt)
    assert dataclasses.asdict(decoded) == {
        "status": "rejected",
        "region": "oregon",
        "router": "oregon-router-1",
        "topic": "news.world",
        "message_id": "m1",
        "id": None,
        "identity": None,
        "reason": "not_json",
        "detail": "unexpected end of data",
        "repeated": False,
    }


def test_text_that_isnt_utf8_is_made_readable_and_a_reply_to_like_that_gets_no_receipt():
    assert readable("a\udcffb") == "a\\udcffb"
    _, receipt = rejected(message("news.\udcff", reply_to="me", correlation_id="\udcff"))
    assert receipt.properties.correlation_id is None
    assert control.decode_receipt(receipt).topic == "news.\\udcff"
    assert len(rejected(message(reply_to="\udcff"))) == 1


@pytest.mark.parametrize("repeated", [False, True])
def test_a_routed_message_is_answered_with_its_id(repeated: bool):
    submission = receive(message(message_id="m1"), now_ms=EPOCH)
    asked = Claim(Delivery(message(), False, 1, 1), None, "me", "c1")  # type: ignore[arg-type]
    pending = RECEIPTS.routed(submission, asked, router_ms=EPOCH + 1, repeated=repeated)
    receipt = control.decode_receipt(pending.message)
    assert (pending.exchange, pending.message.topic) == ("receipts", "me")
    assert pending.message.properties.correlation_id == "c1"
    assert (receipt.status, receipt.repeated) == ("routed", repeated)
    assert receipt.id == id_of(EPOCH + 1, submission.identity)
    assert receipt.identity == identity_text(submission.identity)
