"""examples/go, examples/node, examples/ruby with a silent broker, or with forged receipts."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import json
import subprocess
from collections.abc import AsyncIterator, Callable
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


Samples = Callable[[str], list[str]]


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Samples:
    """Return a function: the command of the sample in a language, without its arguments."""

    @functools.cache
    def made(language: str) -> list[str]:
        return command(language, tmp_path_factory.mktemp("samples"))

    return made


@pytest.fixture(params=SAMPLES)
def sample(request: pytest.FixtureRequest, samples: Samples) -> list[str]:
    return samples(request.param)


@pytest.fixture
async def region(rabbitmq: Node) -> AsyncIterator[ClientRegion]:
    async with ClientRegions.on(rabbitmq) as regions:
        yield await regions("oregon")


async def published(sample: list[str], url: str, folder: Path) -> subprocess.CompletedProcess[str]:
    words = [*sample, url, "cms", "news.x", "{}"]
    return await asyncio.to_thread(run, words, folder, RUN_WITHIN)


async def test_a_broker_that_confirms_nothing_ends_a_sample_with_the_id_to_send_again(
    samples: Samples, region: ClientRegion, tmp_path: Path
) -> None:
    """All samples at once: each waits for ten seconds."""
    commands: dict[str, list[str]] = {}
    for language in SAMPLES:
        with contextlib.suppress(pytest.skip.Exception):
            commands[language] = samples(language)
    if not commands:
        pytest.skip("no sample can be built")
    async with asyncio.TaskGroup() as at_once:
        for language, sample in commands.items():
            at_once.create_task(_ends_without_a_confirm(sample, region, tmp_path), name=language)


async def _ends_without_a_confirm(sample: list[str], region: ClientRegion, folder: Path) -> None:
    parts = urlsplit(region.url)
    proxy = Proxy(str(parts.hostname), int(parts.port or 0))
    await proxy.start()
    fall_silent(proxy, PUBLISH)
    try:
        done = await published(sample, proxy.before(region.url), folder)
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
