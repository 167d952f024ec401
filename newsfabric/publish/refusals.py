"""The message that made a broker close a channel, and the reason of the refusal. Pure.

AMQP closes a channel for one bad message, without its delivery tag or id. RabbitMQ's words (the
same in 3.10 to 4.3) name the fault, which identifies the message among those in flight. Messages
that the words don't name are sent again.
"""

from __future__ import annotations

import re
from typing import Final

from newsfabric.amqp.message import Message
from newsfabric.messages.control import PUBLISHER_NOT_ALLOWED
from newsfabric.topology import PUBLISH

# A broker's reply code and words.
_FINAL_REFUSAL: Final = re.compile(r"\b\d{3} [A-Z_]+ - ")
_NO_ENTRANCE: Final = f"NOT_FOUND - no exchange '{PUBLISH}'"
_SIZE: Final = re.compile(r"PRECONDITION_FAILED - message size (\d+) is larger")
_EXPIRATION: Final = re.compile(r"PRECONDITION_FAILED - invalid expiration '(.*?)'")
_USER: Final = re.compile(r"PRECONDITION_FAILED - user_id property set to '(.*?)'")


def refused(words: str, message: Message) -> str | None:
    """Return why a broker's ``words`` refuse ``message``; None if they mean another message.

    It is one of :data:`newsfabric.messages.envelope.REJECT_REASONS`.
    """
    properties = message.properties
    if "ACCESS_REFUSED" in words:
        mine = f"topic '{message.topic}'" in words or f"access to exchange '{PUBLISH}'" in words
        return PUBLISHER_NOT_ALLOWED if mine else None
    if found := _SIZE.search(words):
        return "too_large" if int(found[1]) == len(message.body) else None
    if found := _EXPIRATION.search(words):
        return "bad_property" if found[1] == properties.expiration else None
    if found := _USER.search(words):
        return (
            PUBLISHER_NOT_ALLOWED if found[1] in (properties.user_id, properties.app_id) else None
        )
    return None


def is_final_refusal(words: str) -> bool:
    """Return whether ``words`` are a broker's own; else the connection broke, or there was none."""
    return _FINAL_REFUSAL.search(words) is not None


def is_no_entrance(words: str) -> bool:
    """Return whether a broker's ``words`` mean that it takes no publisher's message: it isn't the
    fabric's entrance, or not any more."""
    return _NO_ENTRANCE in words
