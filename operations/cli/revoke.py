"""``newsfabric revoke``: notifies every region's routers at once, also while regions are cut off.

The revocation is published directly to ``intake`` of each core broker that answers; the first
receipt of a region suffices. Publishers can't do this: their messages arrive through a shovel, and
routers reject this topic from a shovel.
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from newsfabric.amqp.link import connect
from newsfabric.errors import ConfigError, LinkError, NewsfabricError, PublishError
from newsfabric.messages.control import Receipt, revocation
from newsfabric.publish import AsyncPublisher
from newsfabric.safe_output import echo
from newsfabric.settings import Credentials, Fabric, Region, credentials_from, load_fabric
from newsfabric.tokens import is_user
from newsfabric.topology import INTAKE, RECEIPTS
from operations.cli.sending import APP_ID, send_with_retry
from operations.cli.wait_limit import HINT, wait_limited
from operations.worlds import running_world


def run_revoke(user: str, *, state: Path, fabric_file: Path | None, seconds: float) -> None:
    """Revoke ``user`` and print the result; NewsfabricError if no region has taken it.

    Each region has ``seconds`` to answer. ConfigError if ``user`` can't be a user's id.
    """
    if not is_user(user):
        raise ConfigError(f"{user!r} is no user's id (letters, digits, _ and -, at most 64)")
    fabric = running_world(state).fabric if fabric_file is None else load_fabric(fabric_file)
    replies = asyncio.run(_publish_revocation(fabric, user, credentials_from(os.environ), seconds))
    silent = [region for region, problem in replies.items() if problem is not None]
    if len(silent) == len(replies):
        why = "; ".join(f"{region}: {problem}" for region, problem in replies.items())
        raise NewsfabricError(f"{user} isn't revoked: {why}. {HINT}")
    for region in silent:
        echo(f"{region} ({replies[region]}) gets it from the others", err=True)
    echo(f"{user} is revoked")


async def _publish_revocation(
    fabric: Fabric, user: str, credentials: Credentials, seconds: float
) -> dict[str, str | None]:
    names = ", ".join(region.name for region in fabric.regions)
    # Each region has a time-out of its own.
    async with wait_limited(lambda: f"waiting for the routers of {names}", None) as wait:
        wait.began()
        return await revoke_in_all(fabric, user, credentials, seconds)


async def revoke_in_all(
    fabric: Fabric, user: str, credentials: Credentials, seconds: float
) -> dict[str, str | None]:
    """Revoke ``user`` now, in all regions at once; return each region's error, None for success.

    A region has ``seconds`` to answer.
    """
    at_ms = time.time_ns() // 1_000_000
    answers = (_revoke_in(region, user, at_ms, credentials, seconds) for region in fabric.regions)
    problems = await asyncio.gather(*answers)
    return {region.name: why for region, why in zip(fabric.regions, problems, strict=True)}


async def _revoke_in(
    region: Region, user: str, at_ms: int, credentials: Credentials, seconds: float
) -> str | None:
    try:
        async with asyncio.timeout(seconds):
            receipt = await _send(region, user, at_ms, credentials)
    except TimeoutError:
        return f"no answer within {seconds:g} s"
    except (LinkError, PublishError) as exc:
        return str(exc)
    return None if receipt.status == "routed" else f"{receipt.reason}: {receipt.detail}"


async def _send(region: Region, user: str, at_ms: int, credentials: Credentials) -> Receipt:
    links = [
        await connect([node.amqp_url], name="newsfabric revoke", credentials=credentials)
        for node in region.core
    ]
    try:
        publisher = await AsyncPublisher.over(
            links,
            app_id=APP_ID,
            exchange=INTAKE,
            receipts=RECEIPTS,
            copies=len(links),
            timeout=None,
        )
        return await send_with_retry(publisher, revocation(user, at_ms))
    finally:
        await asyncio.gather(*(link.close() for link in links))
