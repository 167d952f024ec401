"""The suite's publisher with the Python library: ``driver.py async|sync SETTINGS``.

clients/java and clients/php have the same program. SETTINGS is a JSON object: ``regions``,
``app_id`` and optionally ``receipt``, ``copies``, ``timeout``, ``window``, ``send_again``. Each
line of its input is one message: ``{"topic", "body", "options"}``, or ``{"topic", "many"}`` for
that many with a body of 100 bytes. All are sent at once; it prints a line for each, in order.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import dataclasses
import json
import sys
import time
from collections.abc import Callable
from typing import Any

from newsfabric.publish import (
    AccessRefused,
    AsyncPublisher,
    Published,
    Publisher,
    PublishError,
)

BODY = '{"headline": "Comet seen over the bay", "padding": "' + 46 * "x" + '"}'


def described(done: Callable[[], Published]) -> dict[str, Any]:
    try:
        return {"published": dataclasses.asdict(done())}
    except PublishError as error:
        names = ("reason", "message_id", "sent")
        fields = {name: getattr(error, name) for name in names if hasattr(error, name)}
        fields |= {"text": str(error)} if isinstance(error, AccessRefused) else {}
        return {"error": type(error).__name__, **fields}
    except ValueError:
        return {"error": "argument"}


def summary(outcomes: list[dict[str, Any]], began: float) -> dict[str, Any]:
    failed = sum("error" in outcome for outcome in outcomes)
    return {"seconds": time.perf_counter() - began, "failed": failed}


def outcome_of(futures: list[Any], began: float, *, many: bool) -> dict[str, Any]:
    outcomes = [described(future.result) for future in futures]
    return summary(outcomes, began) if many else outcomes[0]


def messages(lines: list[dict[str, Any]]) -> list[list[tuple[str, str, dict[str, Any]]]]:
    return [
        [(line["topic"], line.get("body", BODY), line.get("options", {}))] * line.get("many", 1)
        for line in lines
    ]


def run_sync(settings: dict[str, Any], lines: list[dict[str, Any]]) -> None:
    began = time.perf_counter()
    with Publisher(**settings) as publisher:
        sent = [[publisher.send(t, b, **o) for t, b, o in group] for group in messages(lines)]
        for line, futures in zip(lines, sent, strict=True):
            concurrent.futures.wait(futures)
            sys.stdout.write(json.dumps(outcome_of(futures, began, many="many" in line)) + "\n")


async def run_async(settings: dict[str, Any], lines: list[dict[str, Any]]) -> None:
    began = time.perf_counter()
    async with await AsyncPublisher.open(**settings) as publisher:
        sent = [
            [asyncio.ensure_future(publisher.publish(t, b, **o)) for t, b, o in group]
            for group in messages(lines)
        ]
        for line, futures in zip(lines, sent, strict=True):
            await asyncio.wait(futures)
            sys.stdout.write(json.dumps(outcome_of(futures, began, many="many" in line)) + "\n")


if __name__ == "__main__":
    how, given = sys.argv[1], json.loads(sys.argv[2])
    read = [json.loads(line) for line in sys.stdin]
    if how == "async":
        asyncio.run(run_async(given, read))
    else:
        run_sync(given, read)
