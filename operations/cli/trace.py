"""``newsfabric trace``: asks every router and gateway, then the stores, and prints the way."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote

import orjson
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text
from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.simple_httpclient import SimpleAsyncHTTPClient

from newsfabric.brokers.management import PEEK_MESSAGES
from newsfabric.console import console
from newsfabric.errors import TraceError
from newsfabric.http.fetching import fetch
from newsfabric.safe_output import echo
from newsfabric.settings import Fabric
from operations.cli.messages import rejection_line
from operations.cli.options import line_to_copy
from operations.cli.rejected import read_rejected
from operations.cli.wait_limit import GIVE_UP_AFTER, wait_limited
from operations.message_trace import (
    Evidence,
    TraceAnswer,
    candidates,
    has_missing,
    hop_text,
    identities,
    ids,
    refusals,
    topic_of,
    trace,
)
from operations.worlds import ProcessAddress, WorldPlaces

_TIMEOUT: Final = 3.0
_MAX_BYTES: Final = 4 << 20
# A message has one id for each router that routed a copy; each costs a read of a store.
_MAX_IDS: Final = 8
_PAGE_WIDTH: Final = 160


def places_at(urls: Iterable[str]) -> list[ProcessAddress]:
    """Return processes of which only the URLs are known."""
    return [ProcessAddress("", url, "", url.rstrip("/")) for url in dict.fromkeys(urls)]


async def gather(
    text: str, places: Sequence[ProcessAddress], fabric: Fabric | None, topic: str | None = None
) -> Evidence:
    """Return all that the processes at ``places``, their stores and the brokers of ``fabric`` know.

    The stores are asked for ``topic`` if no process remembers the message.
    """
    asked = await _ask_all(text, places)
    known = identities(asked)
    if len(known) > 1:
        return Evidence(asked=asked, stored={}, rejected=[])
    if known and has_missing(asked):
        # An id's beginning finds the copies of one region: gold has another id in the next one.
        asked = await _ask_all(next(iter(known)), places)
    topic = topic_of(asked) or topic
    stored = {} if topic is None else await _all_stored(ids(asked, text), topic, asked, places)
    rejected = [] if fabric is None else await _rejected(fabric)
    return Evidence(asked=asked, stored=stored, rejected=refusals(text, rejected))


def show_trace(
    text: str,
    places: Sequence[ProcessAddress],
    fabric: Fabric | None,
    *,
    topic: str | None,
    as_json: bool,
) -> None:
    """Print the way of the message ``text``; TraceError if none matches, or more than one."""
    evidence = asyncio.run(_gather_evidence(text, places, fabric, topic))
    if len(identities(evidence.asked)) > 1:
        raise TraceError(_unclear(text, candidates(evidence.asked)))
    found = trace(text, evidence)
    if as_json:
        echo(json.dumps(found, indent=2, ensure_ascii=False))
    elif found["found"]:
        console().print(_page(found))
    if not found["found"]:
        raise TraceError(_unknown(found))


async def _gather_evidence(
    text: str, places: Sequence[ProcessAddress], fabric: Fabric | None, topic: str | None
) -> Evidence:
    # Each process has a time-out of three seconds.
    what = f"waiting for {len(places)} routers and gateways"
    async with wait_limited(lambda: what, GIVE_UP_AFTER) as wait:
        wait.began()
        return await gather(text, places, fabric, topic)


async def describe(text: str, world: WorldPlaces, *, topic: str) -> str:
    """Return the output of `newsfabric trace` for message ``text`` of ``topic``, as plain lines."""
    found = trace(text, await gather(text, world.processes, world.fabric, topic))
    page = console(file=io.StringIO(), width=_PAGE_WIDTH)
    with page.capture() as captured:
        page.print(_page(found) if found["found"] else Text(_unknown(found)))
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


async def _ask_all(text: str, places: Sequence[ProcessAddress]) -> list[TraceAnswer]:
    return list(await asyncio.gather(*(_ask(text, place) for place in places)))


async def _ask(text: str, place: ProcessAddress) -> TraceAnswer:
    kind, name, region, url = place
    answer = await _get(f"{url}/trace/{quote(text, safe='')}")
    if answer is None or "sightings" not in answer:
        return TraceAnswer(kind=kind, name=name, region=region, answer=None)
    return TraceAnswer(
        kind=answer["kind"], name=answer["name"], region=answer["region"], answer=answer
    )


async def _all_stored(
    known: Sequence[str], topic: str, asked: Sequence[TraceAnswer], places: Sequence[ProcessAddress]
) -> dict[str, list[Mapping[str, Any]] | None]:
    """Return by region the rows that one router finds: all routers of a region read one store."""
    routers = {
        who.region: place.url
        for who, place in zip(asked, places, strict=True)
        if who.kind == "router" and who.answer is not None
    }
    some = known[:_MAX_IDS]
    found = await asyncio.gather(*(_stored(url, some, topic) for url in routers.values()))
    return dict(zip(routers, found, strict=True))


async def _stored(url: str, known: Sequence[str], topic: str) -> list[Mapping[str, Any]] | None:
    query = f"?topic={quote(topic, safe='')}"
    answers = await asyncio.gather(*(_get(f"{url}/stored/{each}{query}") for each in known))
    if any(answer is None for answer in answers):
        return None
    rows = [row for answer in answers for row in (answer or {}).get("stored", [])]
    # Ids of one millisecond find the same rows.
    return list(
        {(row["id"], row["router"], row["epoch"], row["seq"]): row for row in rows}.values()
    )


async def _rejected(fabric: Fabric) -> list[dict[str, Any]]:
    nodes = [node for region in fabric.regions for node in region.core]
    found, _ = await read_rejected(nodes, PEEK_MESSAGES, within=_TIMEOUT)
    return found


async def _get(url: str) -> dict[str, Any] | None:
    http = SimpleAsyncHTTPClient(force_instance=True, max_body_size=_MAX_BYTES)
    try:
        request = HTTPRequest(url, connect_timeout=_TIMEOUT, request_timeout=_TIMEOUT)
        answer = await fetch(http, request)
        found = orjson.loads(answer.body)
    except (OSError, HTTPClientError, ValueError):
        return None
    finally:
        http.close()
    return found if isinstance(found, dict) else None


def _page(found: Mapping[str, Any]) -> RenderableType:
    parts: list[RenderableType] = []
    if found["identity"] is not None:
        title = f"{found['topic']}  identity {found['identity']}"
        by = f"  message_id {found['message_id']}" if found["message_id"] else ""
        parts.append(Text(title + by, style="bold"))
    if found["hops"]:
        parts.append(_hops_table(found["hops"]))
    for each in found["rejected"]:
        parts.append(Text(f"rejected  {rejection_line(each)}", style="red"))
    if not found["ids"]:
        # A rejected message has no readers that should have it.
        return Group(*parts)
    for region, rows in found["stored"].items():
        parts.append(Text(f"store in {region}: {_rows(rows)}"))
    for each in found["not_seen"]:
        parts.append(Text(f"not seen by {each['name']}: {each['why']}", style="yellow"))
    if found["topic"] is not None:
        again = line_to_copy(f"newsfabric trace {found['ids'][0]} --topic {found['topic']}")
        parts.append(Text(f"when nobody remembers it any more: {again}", style="dim"))
    return Group(*parts)


def _hops_table(hops: Iterable[Mapping[str, Any]]) -> Table:
    table = Table("time", "ms", "region", "where", "what", box=None, pad_edge=False)
    table.columns[1].justify = "right"
    for hop in hops:
        lost = hop["step"] == "arrived" and not hop["won"]
        after = "" if hop["after_ms"] is None else f"+{hop['after_ms']}"
        cells = (_time(hop["at_ms"]), after, hop["region"], hop["name"], hop_text(hop))
        table.add_row(*cells, style="dim" if lost else "")
    return table


def _rows(rows: Sequence[Mapping[str, Any]] | None) -> str:
    if rows is None:
        return "no answer"
    if not rows:
        return "nothing"
    return ", ".join(f"{row['id']} ({row['router']} number {row['seq']})" for row in rows)


def _time(ms: int) -> str:
    at = datetime.fromtimestamp(ms / 1000, UTC).astimezone()
    return f"{at:%H:%M:%S}.{ms % 1000:03d}"


def _unclear(text: str, found: Sequence[Mapping[str, Any]]) -> str:
    lines = [f"  {each['identity']}  {each['topic']}  {each['message_id'] or ''}" for each in found]
    return "\n".join([f"{text!r} may be any of these, the newest first:", *lines])


def _unknown(found: Mapping[str, Any]) -> str:
    lines = [f"nobody knows {found['query']!r}"]
    for each in found["remembered"]:
        since = "" if each["since_ms"] is None else f", since {_time(each['since_ms'])}"
        lines.append(f"  {each['name']} remembers {each['messages']} messages{since}")
    lines += [f"  {e['name']}: {e['why']}" for e in found["not_seen"] if "answer" in e["why"]]
    lines.append(
        "Give an id, the identity in a receipt, the first four digits or more of either, or a "
        "message_id. With a whole id and its --topic the stores find what nobody remembers. "
        "`newsfabric rejected` shows what was refused."
    )
    return "\n".join(lines)
