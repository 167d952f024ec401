"""Whether anything was published to a topic before: a frontdesk is asked, by its history.

A fabric has no list of topics: entries of topics.toml with wildcards allow more than anybody will
use, so a misspelt one is routed and read by nobody. What a frontdesk can say for sure is that the
store has nothing of it, so that, and no more, is said. Of topics that aren't public it tells
nothing, and one that an entry names as it is can't be misspelt: neither is asked for.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from typing import Final
from urllib.parse import urlencode

import orjson
from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.simple_httpclient import SimpleAsyncHTTPClient

from newsfabric.http.fetching import fetch
from newsfabric.topics import TopicTable
from operations.topic_checks import match

# Seconds for all of them: publishing doesn't wait for longer.
_PATIENCE: Final = 1.0
# One message, and what is around it.
_MAX_BYTES: Final = 512 * 1024


async def is_unused(topic: str, topics: TopicTable, frontdesks: Iterable[str]) -> bool:
    """Whether the store has no message of ``topic``; False, too, where nobody can say.

    The first of ``frontdesks`` (their URLs) that answers decides.
    """
    policy = topics.find(topic)
    if policy is None or policy.access != "public" or policy.pattern == topic or not policy.ttl:
        return False
    http = SimpleAsyncHTTPClient(force_instance=True, max_body_size=_MAX_BYTES)
    with contextlib.closing(http), contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_PATIENCE):
            for url in frontdesks:
                asked = f"{url.rstrip('/')}/history?{urlencode({'topic': topic, 'limit': 1})}"
                request = HTTPRequest(asked, connect_timeout=_PATIENCE, request_timeout=_PATIENCE)
                with contextlib.suppress(OSError, HTTPClientError, ValueError, TypeError, KeyError):
                    answer = orjson.loads((await fetch(http, request)).body)
                    return not answer["messages"] and "missing" not in answer
    return False


def refusal_hint(reason: str, topic: str, topics: TopicTable) -> str:
    """What is added to a refusal for ``reason``: the topics that one which isn't there is spelt
    like. Empty where nothing helps."""
    meant = _meant(topic, topics) if reason == "topic_not_allowed" else ""
    return f"; {meant}" if meant else ""


def _meant(topic: str, topics: TopicTable) -> str:
    like = [each["topic"] for each in match(topics, topic)["like"]]
    return f"did you mean {' or '.join(like)}?" if like else ""


def unused_hint(topic: str, topics: TopicTable) -> str:
    """What is said of a topic that nothing was published to, with those that are spelt like it."""
    meant = _meant(topic, topics) or "a spelling mistake?"
    shown = f"`newsfabric topics match {topic}` shows what it falls under"
    return f"nothing of {topic} is kept from before: a new topic, or {meant} {shown}"
