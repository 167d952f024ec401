"""The requests of `newsfabric trace` to routers and gateways, over real sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application, RequestHandler

from newsfabric.messages.envelope import id_of, identity_text
from newsfabric.tracing.sightings import SeenCopy, Sighting, Sightings
from operations.cli.options import line_to_copy, state_option
from operations.cli.trace import gather, places_at
from operations.message_trace import trace

GOLD = 0x2743AA7AC79215815AB
OREGON_MS, DUBLIN_MS = 1_790_000_000_000, 1_790_000_000_700


class Trace(RequestHandler):
    """``/trace/ID`` of a router of ``region``."""

    def initialize(self, region: str, seen: Sightings) -> None:
        self.region, self.seen = region, seen

    def get(self, text: str) -> None:
        name = {"kind": "router", "name": f"{self.region}-router-1", "region": self.region}
        self.finish(name | self.seen.sightings_document(text))


@pytest.fixture
async def routers() -> AsyncIterator[Callable[..., str]]:
    servers = []

    def router(region: str, *messages: tuple[int, int]) -> str:
        """Return the URL of a router that routed ``messages``: identities, and its own clock."""
        seen = Sightings(keep_seconds=1e9)
        for identity, at_ms in messages:
            copy = SeenCopy(at_ms, ("publish.oregon.1",))
            one = Sighting(
                identity, "news.breaking", None, at_ms, [copy], id=id_of(at_ms, identity)
            )
            seen.first(one)
        given = {"region": region, "seen": seen}
        server = HTTPServer(Application([("/trace/(.*)", Trace, given)], log_function=lambda _: 0))
        (socket,) = sockets = bind_sockets(0, "127.0.0.1")
        server.add_sockets(sockets)
        servers.append(server)
        return f"http://127.0.0.1:{socket.getsockname()[1]}"

    yield router
    for server in servers:
        server.stop()
        await server.close_all_connections()


@pytest.mark.parametrize("length", [13, 23, 36], ids=["its time", "most of it", "all of it"])
async def test_the_beginning_of_an_id_finds_gold_in_every_region(
    routers: Callable[..., str], length: int
) -> None:
    places = places_at([routers("oregon", (GOLD, OREGON_MS)), routers("dublin", (GOLD, DUBLIN_MS))])
    text = id_of(OREGON_MS, GOLD)[:length]
    found = trace(text, await gather(text, places, None))
    assert found["identity"] == identity_text(GOLD)
    assert {hop["region"] for hop in found["hops"] if hop["step"] == "arrived"} == {
        "oregon",
        "dublin",
    }
    assert found["not_seen"] == []


async def test_who_hasnt_seen_it_under_its_identity_either_is_reported(
    routers: Callable[..., str],
) -> None:
    places = places_at([routers("oregon", (GOLD, OREGON_MS)), routers("dublin", (7, DUBLIN_MS))])
    text = id_of(OREGON_MS, GOLD)[:13]
    found = trace(text, await gather(text, places, None))
    assert [each["name"] for each in found["not_seen"]] == ["dublin-router-1"]


async def test_a_beginning_that_may_mean_two_messages_is_not_guessed(
    routers: Callable[..., str],
) -> None:
    places = places_at([routers("oregon", (GOLD, OREGON_MS), (7, OREGON_MS))])
    evidence = await gather(id_of(OREGON_MS, GOLD)[:13], places, None)
    sightings = evidence.asked[0].answer
    assert sightings is not None
    assert {seen["identity"] for seen in sightings["sightings"]} == {
        identity_text(GOLD),
        identity_text(7),
    }


def test_the_line_to_copy_names_the_world_that_was_asked(tmp_path: Path) -> None:
    @click.command()
    @state_option
    def probe(state: Path) -> None:
        click.echo(line_to_copy(f"newsfabric trace {state.name}"))

    assert CliRunner().invoke(probe, []).output == "newsfabric trace .world\n"
    output = CliRunner().invoke(probe, ["--state", str(tmp_path / "w")]).output
    assert output == f"newsfabric trace w --state {tmp_path / 'w'}\n"
