"""Messages for which a broker closed a channel, found by the words of RabbitMQ 3.10 and 4.3."""

from __future__ import annotations

import pytest

from newsfabric.amqp.message import Message, Properties
from newsfabric.publish.refusals import is_final_refusal, is_no_entrance, refused

SIZE = "message size 200000 is larger than configured max size 131072"
EXPIRATION = "invalid expiration '-1': {value_negative,-1}"
USER = "user_id property set to 'cms' but authenticated user was 'guest'"
TOPIC = "write access to topic 'news.x' in exchange 'publish' in vhost '/' refused for user 'cms'"
EXCHANGE = "write access to exchange 'publish' in vhost '/' refused for user 'cms'"

MEANT = Message("news.x", b"x" * 200_000, Properties(app_id="cms", expiration="-1"))
ANOTHER = Message("sport.x", b"{}", Properties(app_id="web", expiration="60000"))


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (f"publisher cms: 406 PRECONDITION_FAILED - {SIZE}", "too_large"),
        (f"publisher cms: 406 PRECONDITION_FAILED - {EXPIRATION}", "bad_property"),
        (f"publisher cms: 406 PRECONDITION_FAILED - {USER}", "publisher_not_allowed"),
        (f"publisher cms: 403 ACCESS_REFUSED - {TOPIC}", "publisher_not_allowed"),
    ],
)
def test_the_words_tell_which_message_it_was(words: str, reason: str) -> None:
    assert (refused(words, MEANT), refused(words, ANOTHER)) == (reason, None)
    assert is_final_refusal(words)


def test_who_may_not_write_to_the_exchange_may_publish_nothing() -> None:
    words = f"publisher cms: 403 ACCESS_REFUSED - {EXCHANGE}"
    assert refused(words, ANOTHER) == "publisher_not_allowed"


@pytest.mark.parametrize(
    "words", ["publisher cms: the connection is closed", "publisher cms: no link to publish on"]
)
def test_what_no_broker_says_refuses_nothing(words: str) -> None:
    assert refused(words, MEANT) is None
    assert not is_final_refusal(words)


def test_a_broker_without_the_exchange_is_no_entrance() -> None:
    assert is_no_entrance("publisher cms: 404 NOT_FOUND - no exchange 'publish' in vhost '/'")
    assert not is_no_entrance("publisher cms: 404 NOT_FOUND - no queue 'publish' in vhost '/'")
