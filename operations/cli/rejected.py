"""``newsfabric rejected``."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from newsfabric.brokers.management import Management
from newsfabric.errors import ManagementError
from newsfabric.safe_output import echo
from newsfabric.settings import Credentials, Node, Region
from newsfabric.topology import REJECTED
from operations.cli.messages import rejection, rejection_line
from operations.cli.wait_limit import GIVE_UP_AFTER, wait_limited


async def show_rejected(region: Region, *, limit: int, as_json: bool) -> None:
    """Print the messages in the queues of rejected ones of ``region``'s core brokers, and leave
    them there. ManagementError if no broker answers."""
    urls = ", ".join(node.management_url for node in region.core)
    async with wait_limited(lambda: f"waiting for {urls}", GIVE_UP_AFTER) as wait:
        wait.began()
        found, silent = await read_rejected(region.core, limit)
    if len(silent) == len(region.core):
        raise next(iter(silent.values()))
    for node, problem in silent.items():
        echo(f"{node}: {problem}", err=True)
    for each in found[:limit]:
        echo(json.dumps(each, ensure_ascii=False) if as_json else rejection_line(each))
    if not found and not as_json:
        echo(f"nothing was rejected in {region.name}")


async def read_rejected(
    nodes: Sequence[Node], limit: int, *, within: float = 5.0
) -> tuple[list[dict[str, Any]], Mapping[str, ManagementError]]:
    """Return the rejected messages of ``nodes``, at most ``limit`` each, and the errors of nodes
    that don't answer ``within`` that many seconds."""

    async def of(node: Node) -> list[dict[str, Any]]:
        async with Management(node.management_url, Credentials(), timeout=within) as management:
            return [rejection(entry) for entry in await management.peek(REJECTED, limit)]

    answers = await asyncio.gather(*map(of, nodes), return_exceptions=True)
    found: list[dict[str, Any]] = []
    silent: dict[str, ManagementError] = {}
    for node, answer in zip(nodes, answers, strict=True):
        if isinstance(answer, ManagementError):
            silent[node.name] = answer
        elif isinstance(answer, BaseException):
            raise answer
        else:
            found += answer
    return each_once(found), silent


def each_once(found: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Merge the rejections of several brokers, the oldest first. A router publishes a rejection to
    all brokers alike, so equal ones are one."""
    once = {json.dumps(each, sort_keys=True): each for each in found}
    return sorted(once.values(), key=_when)


def _when(found: Mapping[str, Any]) -> int:
    at = found["rejected_at"]
    return at if isinstance(at, int) else 0
