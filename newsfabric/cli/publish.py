"""``newsfabric publish``."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import secrets
import time
from pathlib import Path

from newsfabric.amqp import Message
from newsfabric.cli.messages import make_message, read_body, trace_hint
from newsfabric.cli.sending import APP_ID, in_its_name, send_with_retry, waiting_for_receipts
from newsfabric.cli.wait_limit import hint_about, wait_limited
from newsfabric.control import Receipt
from newsfabric.errors import NewsfabricError, Rejected, Unanswered
from newsfabric.publish import AsyncPublisher
from newsfabric.safe_output import echo
from newsfabric.topics import load_topics
from newsfabric.topology import mask
from newsfabric.worlds import world_to_publish_to


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
    """Publish one message and print its receipt's id, or the receipt; Rejected if it was.

    For a person, the line that traces it goes to stderr.
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
    urls = world.publishing_urls(region)
    message = in_its_name(message, load_topics(world.topics))
    try:
        receipt = asyncio.run(_send(urls, message, seconds))
    except Unanswered as exc:
        why = f"{_unanswered(exc, urls, seconds)}. {hint_about(world)}"
        raise NewsfabricError(why) from exc
    if as_json:
        echo(json.dumps(dataclasses.asdict(receipt), ensure_ascii=False))
    if receipt.status == "rejected":
        raise Rejected(receipt.reason or "?", receipt.detail or "")
    if not as_json:
        echo(receipt.id or "")
        if receipt.identity:
            echo(trace_hint(receipt.identity), err=True)


async def _send(urls: list[str], message: Message, seconds: float) -> Receipt:
    publisher: AsyncPublisher | None = None

    def waiting() -> str:
        return waiting_for_receipts(urls, () if publisher is None else (publisher,))

    async with wait_limited(waiting, None) as wait:
        wait.began()
        opening = AsyncPublisher.open([",".join(urls)], app_id=APP_ID, timeout=seconds)
        async with await opening as publisher:
            return await send_with_retry(publisher, message, seconds)


def _unanswered(error: Unanswered, urls: list[str], seconds: float) -> str:
    where = ", ".join(map(mask, urls))
    trouble = f" ({error.trouble})" if error.trouble else ""
    if not error.sent:
        return f"nothing was sent: no broker took it within {seconds:g} s, of {where}{trouble}"
    return (
        f"no receipt from {where} within {seconds:g} s{trouble}; the message may have been routed "
        f"nevertheless: send it again with --message-id {error.message_id}"
    )
