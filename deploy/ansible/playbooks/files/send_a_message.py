"""Sends a message through the fabric, and checks that it arrives at each box exactly once.

Run on a core node, by the release's Python. It subscribes at each of the given boxes, publishes one
message through this region's frontdesk, and waits for the messages of all expected regions at each
box. It prints the boxes that lack some. The API key is read from a file, and shown nowhere.
"""

import argparse
import asyncio
import collections
import contextlib
import json
import os
import sys
import time
from pathlib import Path

from tornado.httpclient import AsyncHTTPClient, HTTPClientError, HTTPRequest

from newsfabric.errors import Disconnected
from newsfabric.http.fetching import fetch
from newsfabric.reader import Endpoint, Reader, connect

# The topic that everyone may publish to, and nobody reads.
TOPIC = "fabric.canary"
# Includes a message that another region's program sent before the subscription here.
REWIND = "2m"
# Time after the last message, for a possible second copy.
LINGER = 2.0
PAUSE = 1.0


def gateway(address: str) -> Endpoint:
    """Return the gateway at ``host:port``."""
    return Endpoint(
        sockjs_url=f"http://{address}/sockjs",
        websocket_url=f"ws://{address}/websocket",
        sse_url=f"http://{address}/events",
    )


def key(path: Path) -> str:
    """Return the first key in a frontdesk's file: a line is ``KEY`` or ``APP_ID KEY``."""
    lines = (line.split() for line in path.read_text().splitlines())
    return next(words[-1] for words in lines if words and not words[0].startswith("#"))


async def publish(options: argparse.Namespace) -> list[str]:
    """Send the message until the frontdesk reports it as routed; return the errors."""
    message = {
        "topic": TOPIC,
        "body": {"run": options.run, "region": options.region},
        "message_id": f"verify-{options.run}-{options.region}",
    }
    request = HTTPRequest(
        f"{options.frontdesk}/publish",
        method="POST",
        headers={"X-API-Key": key(options.keys), "Content-Type": "application/json"},
        body=json.dumps(message),
        ca_certs=os.environ.get("NEWSFABRIC_TLS_CA_FILE"),
    )
    deadline = time.monotonic() + options.timeout
    while True:
        try:
            await fetch(AsyncHTTPClient(), request)
        except (OSError, HTTPClientError, ValueError) as exc:
            if time.monotonic() > deadline:
                return [f"{options.frontdesk} didn't take the message of {options.region}: {exc}"]
            await asyncio.sleep(PAUSE)
        else:
            return []


async def begin(address: str, seconds: float) -> Reader | str:
    """Return a subscribed reader at a box, or the reason why there is none."""
    try:
        async with asyncio.timeout(seconds):
            reader = await connect(gateway(address), "websocket")
            await reader.subscribe(TOPIC, rewind=REWIND)
            while (push := await anext(reader)).type != "subscribed":
                if push.type == "error":
                    return str(push.fields.get("reason"))
            return reader
    except (OSError, Disconnected, TimeoutError) as exc:
        return str(exc) or "no answer"


async def count(reader: Reader, options: argparse.Namespace) -> collections.Counter[str]:
    """Count the message of each region, until a second copy would have arrived."""
    got: collections.Counter[str] = collections.Counter()
    clock = asyncio.get_running_loop().time
    with contextlib.suppress(TimeoutError, Disconnected):
        async with reader, asyncio.timeout(options.timeout) as limit:
            async for push in reader:
                body = push.fields.get("body") if push.is_message else None
                if isinstance(body, dict) and body.get("run") == options.run:
                    got[str(body.get("region"))] += 1
                    if all(got[region] for region in options.expect):
                        limit.reschedule(clock() + LINGER)
    return got


async def run(options: argparse.Namespace) -> list[str]:
    """Return the errors of the frontdesk and of all boxes."""
    boxes = dict(name.partition("=")[::2] for name in options.box)
    begun = await asyncio.gather(*(begin(at, options.timeout) for at in boxes.values()))
    taken = dict(zip(boxes, begun, strict=True))
    wrong = [
        f"{name} ({boxes[name]}) takes no reader: {reader}"
        for name, reader in taken.items()
        if isinstance(reader, str)
    ]
    readers = {name: reader for name, reader in taken.items() if not isinstance(reader, str)}
    wrong += await publish(options)
    found = await asyncio.gather(*(count(reader, options) for reader in readers.values()))
    return wrong + [
        f"{name} ({boxes[name]}) got the message of {region} {got[region]} times, not once"
        for name, got in zip(readers, found, strict=True)
        for region in options.expect
        if got[region] != 1
    ]


def main() -> None:
    """Run; see the module's docstring."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--frontdesk", required=True)
    parser.add_argument("--keys", required=True, type=Path)
    parser.add_argument("--region", required=True)
    parser.add_argument("--run", required=True)
    parser.add_argument("--expect", action="append", required=True, metavar="REGION")
    parser.add_argument("--box", action="append", default=[], metavar="NAME=HOST:PORT")
    parser.add_argument("--timeout", type=float, default=30.0)
    if wrong := asyncio.run(run(parser.parse_args())):
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
