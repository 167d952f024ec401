"""``newsfabric publish``."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import secrets
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from newsfabric.amqp import Message
from newsfabric.errors import NewsfabricError, Rejected, Unanswered
from newsfabric.messages.control import Receipt
from newsfabric.publish import AsyncPublisher
from newsfabric.safe_output import echo
from newsfabric.topics import TopicTable, load_topics
from newsfabric.topology import mask
from operations.cli.messages import make_message, read_body, trace_hint
from operations.cli.sending import (
    APP_ID,
    in_its_name,
    publisher_by,
    send_with_retry,
    waiting_for_receipts,
)
from operations.cli.unused import is_unused, refusal_hint, unused_hint
from operations.cli.wait_limit import hint_about, wait_limited
from operations.worlds import world_to_publish_to


def run_publish(
    topic: str,
    body: str,
    *,
    state: Path,
    region: str | None,
    key: str | None,
    version: int | None,
    message_id: str | None,
    app_id: str | None,
    seconds: float,
    as_json: bool,
) -> None:
    """Publish one message and print its receipt's id, or the receipt; Rejected if it was rejected.

    Stderr gets the region that took it, if the first one's entrance is away. Without ``as_json`` it
    also gets the line that traces the message, and a hint if the topic was unused before.
    """
    content = read_body(body)
    world = world_to_publish_to(state, lambda text: echo(text, err=True))
    message = make_message(
        topic,
        content,
        message_id=message_id or f"cli-{secrets.token_hex(8)}",
        app_id=app_id or APP_ID,
        now_ms=time.time_ns() // 1_000_000,
        key=key,
        version=version,
    )
    ways = world.publishing_ways(region)
    topics = load_topics(world.topics)
    regions = {each.name: each.frontdesk_url for each in world.fabric.regions}
    frontdesk_urls = [] if as_json else [regions[name] for name in ways if name in regions]
    try:
        sent = asyncio.run(
            _send(ways, in_its_name(message, topics), seconds, topics, frontdesk_urls)
        )
    except Unanswered as exc:
        urls = [url for urls in ways.values() for url in urls]
        why = f"{_unanswered(exc, urls, seconds)}. {hint_about(world)}"
        raise NewsfabricError(why) from exc
    receipt = sent.receipt
    if sent.detour:
        echo(sent.detour, err=True)
    if as_json:
        echo(json.dumps(dataclasses.asdict(receipt), ensure_ascii=False))
    if receipt.status == "rejected":
        reason = receipt.reason or "?"
        raise Rejected(reason, f"{receipt.detail or ''}{refusal_hint(reason, topic, topics)}")
    if not as_json:
        echo(receipt.id or "")
        if receipt.identity:
            echo(trace_hint(receipt.identity), err=True)
        if sent.was_unused:
            echo(unused_hint(topic, topics), err=True)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Sent:
    """The receipt; the detour through another entrance, as text; True if the topic was unused."""

    receipt: Receipt
    detour: str
    was_unused: bool


async def _send(
    ways: Mapping[str, Sequence[str]],
    message: Message,
    seconds: float,
    topics: TopicTable,
    frontdesk_urls: Sequence[str],
) -> _Sent:
    publisher: AsyncPublisher | None = None

    def waiting() -> str:
        urls = (url for urls in ways.values() for url in urls)
        return waiting_for_receipts(urls, () if publisher is None else (publisher,))

    async with wait_limited(waiting, None) as wait:
        wait.began()
        opening = publisher_by(ways, seconds=seconds)
        # Asked while the publisher connects, before anything of this message is stored.
        opened, was_unused = await asyncio.gather(
            opening, is_unused(message.topic, topics, frontdesk_urls)
        )
        async with opened as publisher:
            receipt = await send_with_retry(publisher, message, seconds)
            detour = _detour(list(ways), publisher)
    return _Sent(receipt=receipt, detour=detour, was_unused=was_unused)


def _detour(names: Sequence[str], publisher: AsyncPublisher) -> str:
    if not publisher.answered_by:
        return ""
    trouble = publisher.troubles()
    how = f"is away ({trouble})" if trouble else "didn't answer in time"
    return f"{names[0]}'s entrance {how}: published by {names[publisher.answered_by]}"


def _unanswered(error: Unanswered, urls: list[str], seconds: float) -> str:
    where = ", ".join(map(mask, urls))
    trouble = f" ({error.trouble})" if error.trouble else ""
    if not error.sent:
        return f"nothing was sent: no broker took it within {seconds:g} s, of {where}{trouble}"
    return (
        f"no receipt from {where} within {seconds:g} s{trouble}; the message may have been routed "
        f"nevertheless: send it again with --message-id {error.message_id}"
    )
