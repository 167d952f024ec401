"""A check whether a topic is unused: asks a frontdesk for its history.

A fabric has no list of its topics: wildcards in topics.toml allow more than are ever used, so a
message to a misspelt topic is routed and read by nobody. A frontdesk knows for sure only that the
store has no message of a topic, so the hint states no more. Two kinds of topics aren't asked for: a
frontdesk reveals nothing of those that aren't public, and a topic named in an entry isn't misspelt.
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

# Time-out in seconds for all frontdesks: publishing doesn't wait for longer.
_PATIENCE: Final = 1.0
# One message, and the JSON around it.
_MAX_BYTES: Final = 512 * 1024


async def is_unused(topic: str, topics: TopicTable, frontdesks: Iterable[str]) -> bool:
    """Return whether the store has no message of ``topic``; False if that is unknown.

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
    """Return the end of an error for ``reason``: the topics of a similar spelling. Empty if there
    are none, or for another reason."""
    meant = _meant(topic, topics) if reason == "topic_not_allowed" else ""
    return f"; {meant}" if meant else ""


def _meant(topic: str, topics: TopicTable) -> str:
    like = [each["topic"] for each in match(topics, topic)["like"]]
    return f"did you mean {' or '.join(like)}?" if like else ""


def unused_hint(topic: str, topics: TopicTable) -> str:
    """Return the hint for an unused topic, with the topics of a similar spelling."""
    meant = _meant(topic, topics) or "a spelling mistake?"
    shown = f"`newsfabric topics match {topic}` shows what it falls under"
    return f"nothing of {topic} is kept from before: a new topic, or {meant} {shown}"
