"""``newsfabric publish``, ``tail``, ``replay``, ``trace`` and ``rejected``."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from operations.cli.options import examples, json_option, region_option, state_option


@click.command(
    epilog=examples(
        """newsfabric publish news.breaking '{"headline": "It works"}'""",
        "newsfabric publish live.election @post.json --key election --version 3 --region dublin",
        "jq -c .story < in.json | newsfabric publish news.world - --message-id story-17",
    )
)
@click.argument("topic")
@click.argument("body")
@state_option
@region_option("Where to publish; or `proxy`, in a world that has one.")
@click.option("--key", help="What it is a version of, such as a story.")
@click.option("--version", type=int, help="Which version of the key.")
@click.option("--message-id", help="What makes a repeat of it known as one.  [default: made up]")
@click.option("--app-id", help="Who publishes; the message id is unique within it.")
@click.option("--timeout", type=click.FloatRange(min=0.1), default=10.0, show_default=True)
@json_option
def publish(
    topic: str,
    body: str,
    state: Path,
    region: str | None,
    key: str | None,
    version: int | None,
    message_id: str | None,
    app_id: str | None,
    timeout: float,
    as_json: bool,
) -> None:
    """Publish BODY to TOPIC over AMQP and print its id.

    BODY is JSON, - for stdin or @FILE. The id comes from the receipt, so the message is stored
    and routed when it is printed; until then it is sent again and again with the same message id.
    A message that the fabric rejects is an error. Readers may see another id, above all of gold.
    All copies have the same identity, which is in the line for `newsfabric trace` on stderr, and
    with --json in the receipt.
    """
    from operations.cli.publish import run_publish

    run_publish(
        topic,
        body,
        state=state,
        region=region,
        key=key,
        version=version,
        message_id=message_id,
        app_id=app_id,
        seconds=timeout,
        as_json=as_json,
    )


@click.command(
    epilog=examples(
        "newsfabric tail news.breaking live.election",
        "newsfabric tail news.breaking --region dublin --count 1 --timeout 20 --json",
        "newsfabric tail sport.football --transport sse --rewind 10",
    )
)
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...")
@state_option
@region_option("Whose readers to be one of.")
@click.option("--count", type=click.IntRange(min=1), help="Stop after so many messages.")
@click.option("--timeout", type=click.FloatRange(min=0.1), help="Stop after so many seconds.")
@click.option(
    "--transport",
    type=click.Choice(["websocket", "sockjs", "xhr-streaming", "sse"]),
    default="websocket",
    show_default=True,
)
@click.option("--rewind", help="Begin with the last N messages, or with those of 90s, 5m, 2h.")
@json_option
def tail(
    topics: tuple[str, ...],
    state: Path,
    region: str | None,
    count: int | None,
    timeout: float | None,
    transport: str,
    rewind: str | None,
    as_json: bool,
) -> None:
    """Subscribe to TOPICs as a reader does, and print each message as it arrives.

    It isn't logged in, so it reads public topics. Exits with 1 when --count messages haven't come
    within --timeout. Reconnects by itself; without --timeout it gives up when no gateway has taken
    it for 30 seconds. Each line ends with the message's identity, which `newsfabric trace` takes.
    With --json each message is a line, as the gateway sent it, with `identity` as its last field.
    """
    from operations.cli.tail import run_tail

    run_tail(
        topics,
        state=state,
        region=region,
        count=count,
        seconds=timeout,
        transport=transport,
        rewind=rewind,
        as_json=as_json,
    )


@click.command(
    epilog=examples(
        "newsfabric replay examples/newsday.jsonl --speed 60      a minute is a second",
        "newsfabric replay examples/newsday.jsonl --speed 0       as fast as it goes",
        "newsfabric replay examples/newsday.jsonl --region oregon --region dublin",
    )
)
@click.argument("file", type=click.Path(path_type=Path))
@state_option
@click.option("--speed", type=click.FloatRange(min=0.0), default=1.0, show_default=True)
@click.option("--region", "regions", multiple=True, help="Where to publish; several take turns.")
@click.option("--keep-ids", is_flag=True, help="Keep message ids: a second replay is a repeat.")
@click.option(
    "--id-suffix",
    metavar="TEXT",
    help="What makes message ids those of this replay, to go on with one.  [default: made up]",
)
@click.option(
    "--start-at",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="N",
    help="Begin with message N of the file, in order of time.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0.1),
    default=30.0,
    show_default=True,
    help="Give up when no receipt has come for so many seconds.",
)
def replay(
    file: Path,
    state: Path,
    speed: float,
    regions: tuple[str, ...],
    keep_ids: bool,
    id_suffix: str | None,
    start_at: int,
    timeout: float,
) -> None:
    """Publish the messages recorded in FILE at their own rhythm, or --speed times as fast.

    Speed 0 is as fast as the fabric answers. Each message waits for its receipt. Where no broker of
    a region answers, the other regions' are asked. When it gives up it prints the command to
    go on: messages that were sent before are repeats then, and readers get them once.
    """
    if keep_ids and id_suffix:
        raise click.UsageError("either --keep-ids or --id-suffix")
    from operations.cli.replay import run_replay

    run_replay(
        file,
        state=state,
        regions=regions,
        speed=speed,
        keep_ids=keep_ids,
        id_suffix=id_suffix,
        start_at=start_at,
        seconds=timeout,
    )


@click.command(epilog=examples("newsfabric rejected", "newsfabric rejected --json | jq .reason"))
@state_option
@region_option("Whose.")
@click.option("--limit", type=click.IntRange(1, 100), default=20, show_default=True)
@json_option
def rejected(state: Path, region: str | None, limit: int, as_json: bool) -> None:
    """Show messages that a router has refused in the last hour, the oldest first, and why."""
    from operations.cli.rejected import show_rejected
    from operations.worlds import running_world

    asyncio.run(show_rejected(running_world(state).region(region), limit=limit, as_json=as_json))


@click.command(
    epilog=examples(
        "newsfabric trace 2743aa7ac79215815ab",
        "newsfabric trace 019b2f4e-6a31-7c55-9c3f-2a4b5c6d7e8f --topic news.breaking",
        "newsfabric trace story-17 --json | jq .hops",
        "newsfabric trace 5c2a --from http://10.0.0.7:9101 --from http://10.0.1.4:15081",
    )
)
@click.argument("id")
@state_option
@click.option(
    "--from", "urls", multiple=True, metavar="URL", help="Ask this router or gateway instead."
)
@click.option(
    "--topic", help="The topic to search in the stores if no process remembers the message."
)
@json_option
def trace(id: str, state: Path, urls: tuple[str, ...], topic: str | None, as_json: bool) -> None:
    """Show every hop of one message with its times, and which of its copies won.

    ID is its id, the identity that `newsfabric tail` and its receipt show, the first four digits or
    more of either, or its message_id. Routers and gateways remember their last 8,192 messages for
    ten minutes; an older one is found in the stores by its whole id and its topic. A gateway's URL
    is that of its admin port.
    """
    from operations.cli.trace import places_at, show_trace
    from operations.worlds import running_world

    if urls:
        show_trace(id, places_at(urls), None, topic=topic, as_json=as_json)
    else:
        world = running_world(state)
        show_trace(id, world.processes, world.fabric, topic=topic, as_json=as_json)
