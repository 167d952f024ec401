import json
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from metric_values import value

from newsfabric.reader.endpoints import parse_endpoints
from newsfabric.reader.push import DROPPED, parse_push, parse_pushes


def test_a_push_is_one_line_even_when_the_publisher_wrote_many() -> None:
    push = parse_push('{"type":"message",\n"body":{\r\n"headline": "a\\nb"}}')
    assert push.text == '{"type":"message", "body":{  "headline": "a\\nb"}}'
    assert json.loads(push.text) == push.fields
    assert push.is_message


ID = "01a1fd8f-fd96-79d0-baa7-ac79215815ab"
OF_ANOTHER_REGION = "01a1fd90-0000-79d0-baa7-ac79215815ab"


@pytest.mark.parametrize("id", [ID, OF_ANOTHER_REGION])
def test_a_push_has_the_identity_of_its_publishers_receipt_whoever_routed_it(id: str) -> None:
    push = parse_push(json.dumps({"type": "message", "id": id}))
    assert push.identity == "2743aa7ac79215815ab"


def test_a_push_with_its_identity_keeps_the_bytes_of_its_body() -> None:
    text = (
        f'{{"type":"message","id":"{ID}","body":{{"price": 1.10, "big": 12345678901234567890}}}} '
    )
    found = parse_push(text).text_with_identity
    assert found == text.rstrip()[:-1] + ',"identity":"2743aa7ac79215815ab"}'
    assert json.loads(found)["identity"] == "2743aa7ac79215815ab"


@pytest.mark.parametrize("text", ['{"type":"pong"}', '{"type":"message","id":"7"}'])
def test_what_has_no_id_has_no_identity(text: str) -> None:
    push = parse_push(text)
    assert (push.identity, push.text_with_identity) == (None, text)


@pytest.mark.parametrize("text", ["", "x", "[]", "7", b"\xff", 1025 * "[" + 1025 * "]"])
def test_what_cant_be_read_is_counted_and_the_rest_is_there(text: str | bytes) -> None:
    before = value(DROPPED)
    found = parse_pushes(['{"type": "message"}', text, b'{"type": "error"}'])
    assert [push.type for push in found] == ["message", "error"]
    assert value(DROPPED) == before + 1


def test_endpoints_are_read() -> None:
    gateway = {"sockjs_url": "http://g/s", "websocket_url": "ws://g/w", "sse_url": "http://g/e"}
    found = parse_endpoints({"region": "oregon", "gateways": [gateway], "retry_ms": 500, "ttl": 5})
    assert found.region == "oregon"
    assert found.gateways[0].websocket_url == "ws://g/w"
    assert found.retry_ms == 500


def test_a_gateway_gets_the_share_of_readers_that_its_weight_says() -> None:
    urls = {"sockjs_url": "http://g/s", "sse_url": "http://g/e"}
    listed = [{**urls, "websocket_url": url, "weight": w} for url, w in (("a", 3), ("b", 1))]
    endpoints = parse_endpoints({"region": "oregon", "gateways": listed})
    rng = random.Random(7)
    chosen = [endpoints.choose(rng).websocket_url for _ in range(4_000)]
    assert chosen.count("a") / 4_000 == pytest.approx(0.75, abs=0.03)


@pytest.mark.parametrize("weight", [0, -1, True, "1", None, math.inf, math.nan])
def test_a_weight_that_is_none_is_a_value_error(weight: object) -> None:
    gateway = {"sockjs_url": "s", "websocket_url": "w", "sse_url": "e", "weight": weight}
    with pytest.raises(ValueError, match="weight"):
        parse_endpoints({"region": "oregon", "gateways": [gateway]})


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(json_values)
def test_what_is_no_endpoints_document_is_a_value_error(document: object) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_endpoints(document)
