"""examples/go, examples/node, examples/ruby with a silent broker, or with forged receipts."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from amqp_links import PUBLISH, Proxy, fall_silent
from client_regions import ClientRegion, ClientRegions
from samples import SAMPLES, command, run

from newsfabric.amqp import Message
from newsfabric.settings import Node

pytestmark = [pytest.mark.broker, pytest.mark.timeout(420)]

# Samples wait 10 s for a confirm, on a machine that is busy.
RUN_WITHIN = 60.0


@pytest.fixture(scope="module", params=SAMPLES)
def sample(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return the command of the sample, without its arguments."""
    return command(request.param, tmp_path_factory.mktemp("samples"))


@pytest.fixture
async def region(rabbitmq: Node) -> AsyncIterator[ClientRegion]:
    async with ClientRegions.on(rabbitmq) as regions:
        yield await regions("oregon")


async def published(sample: list[str], url: str, folder: Path) -> subprocess.CompletedProcess[str]:
    words = [*sample, url, "cms", "news.x", "{}"]
    return await asyncio.to_thread(run, words, folder, RUN_WITHIN)


async def test_a_broker_that_confirms_nothing_ends_a_sample_with_the_id_to_send_again(
    sample: list[str], region: ClientRegion, tmp_path: Path
) -> None:
    parts = urlsplit(region.url)
    proxy = Proxy(str(parts.hostname), int(parts.port or 0))
    await proxy.start()
    fall_silent(proxy, PUBLISH)
    try:
        done = await published(sample, proxy.before(region.url), tmp_path)
    finally:
        await proxy.cut()
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    output = done.stderr.strip().splitlines()[-1]
    assert "no confirm within 10 s: send it again later, with message_id " in output
    assert len(output.rpartition(" ")[2]) >= 32


async def test_without_a_receipt_a_sample_takes_none_that_somebody_made_who_knows_its_message_id(
    sample: list[str], region: ClientRegion, tmp_path: Path
) -> None:
    def forge(message: Message, n: int) -> str | None:
        properties = message.properties
        known = dataclasses.replace(properties, correlation_id=properties.message_id)
        region.answer(dataclasses.replace(message, properties=known), "too_large")
        return "routed" if n == 2 else None

    region.answers = forge
    done = await published(sample, region.url, tmp_path)
    assert done.returncode == 0, done.stderr + done.stdout
    assert json.loads(done.stdout)["status"] == "routed"
    assert len({message.properties.message_id for message in region.seen}) == 1
