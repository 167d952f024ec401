"""``newsfabric revoke``: tells every region's routers at once, whatever is cut between them.

It goes straight into the core clusters' ``intake``. Publishers can't: what comes from them came
through a shovel, and routers reject this topic then.
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import click

from newsfabric.amqp.link import connect
from newsfabric.cli.patience import HINT, patient
from newsfabric.cli.sending import APP_ID, send_patiently
from newsfabric.control import Receipt, revocation
from newsfabric.errors import ConfigError, LinkError, NewsfabricError, PublishError
from newsfabric.publish import AsyncPublisher
from newsfabric.settings import Credentials, Fabric, Region, credentials_from, load_fabric
from newsfabric.tokens import is_user
from newsfabric.topology import INTAKE
from newsfabric.world.state import running_world


def run_revoke(user: str, *, state: Path, fabric_file: Path | None, seconds: float) -> None:
    """Revoke, and say what came of it; NewsfabricError when no region has taken it."""
    if not is_user(user):
        raise ConfigError(f"{user!r} is no user's id (letters, digits, _ and -, at most 64)")
    fabric = running_world(state)[0].fabric() if fabric_file is None else load_fabric(fabric_file)
    told = asyncio.run(_tell_patiently(fabric, user, credentials_from(os.environ), seconds))
    silent = [region for region, problem in told.items() if problem is not None]
    if len(silent) == len(told):
        why = "; ".join(f"{region}: {problem}" for region, problem in told.items())
        raise NewsfabricError(f"{user} isn't revoked: {why}. {HINT}")
    for region in silent:
        click.echo(f"{region} ({told[region]}) will hear of it from the others", err=True)
    click.echo(f"{user} is revoked")


async def _tell_patiently(
    fabric: Fabric, user: str, credentials: Credentials, seconds: float
) -> dict[str, str | None]:
    names = ", ".join(region.name for region in fabric.regions)
    # Each region has its own time.
    async with patient(lambda: f"waiting for the routers of {names}", None) as patience:
        patience.began()
        return await tell_all(fabric, user, credentials, seconds)


async def tell_all(
    fabric: Fabric, user: str, credentials: Credentials, seconds: float
) -> dict[str, str | None]:
    """Revoke ``user`` now, everywhere at once; what went wrong in each region, None for nothing.

    A region gets ``seconds`` to answer.
    """
    at_ms = time.time_ns() // 1_000_000
    answers = (_tell(region, user, at_ms, credentials, seconds) for region in fabric.regions)
    problems = await asyncio.gather(*answers)
    return {region.name: why for region, why in zip(fabric.regions, problems, strict=True)}


async def _tell(
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
    urls = [node.amqp_url for node in region.core]
    link = await connect(urls, name="newsfabric revoke", credentials=credentials)
    try:
        publisher = await AsyncPublisher.over([link], app_id=APP_ID, exchange=INTAKE, timeout=None)
        return await send_patiently(publisher, revocation(user, at_ms))
    finally:
        await link.close()
