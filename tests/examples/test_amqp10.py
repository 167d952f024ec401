"""examples/amqp10: a publisher in AMQP 1.0, with Java's library, at a real RabbitMQ 4."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from localfabric.nodes.rabbitmq import LocalNode
from localfabric.world.rabbitmq_home import RabbitmqHome
from newsfabric.amqp import Declare, Delivery, Message, Properties
from newsfabric.amqp.link import connect
from newsfabric.envelope import receive
from newsfabric.topology import PUBLISH, RECEIPTS, declare_client

pytestmark = [pytest.mark.broker, pytest.mark.timeout(240)]

FOLDER = Path(__file__).parents[2] / "examples" / "amqp10"
TIMEOUT = 180.0


@pytest.fixture
def maven() -> str:
    found = shutil.which("mvn")
    if found is None and os.environ.get("CI"):
        pytest.fail("CI must have Maven, `make setup` installs it")
    return found or pytest.skip("Maven is missing")


async def test_a_publisher_in_amqp_1_0_gets_its_receipt(
    rabbitmq_home: RabbitmqHome, rabbitmq_factory: Callable[[], LocalNode], maven: str
) -> None:
    if int(rabbitmq_home.version.split(".")[0]) < 4:
        pytest.skip(f"RabbitMQ {rabbitmq_home.version} speaks AMQP 1.0 by a plugin alone")
    node = rabbitmq_factory()
    await asyncio.to_thread(node.start)
    arrived: asyncio.Queue[Delivery] = asyncio.Queue()
    link = await connect([node.amqp_url], name="test")
    try:
        await link.on_connect(_declare)
        await link.consumer("t.intake", arrived.put_nowait)
        publisher = await link.publisher()
        await publisher.ready()
        url = node.amqp_url.replace("://", "://guest:guest@")
        body = '{"headline":"Größe"}'
        publishing = asyncio.create_task(_publish(maven, url, "cms", "news.breaking", body))
        async with asyncio.timeout(TIMEOUT):
            delivery = await arrived.get()
            submission = receive(delivery.message, now_ms=0)
            assert (submission.app_id, submission.topic) == ("cms", "news.breaking")
            assert submission.body == body.encode()
            assert submission.reply_to is not None
            answer = Properties(correlation_id=submission.correlation_id)
            receipt = Message(submission.reply_to, b'{"status":"routed"}', answer)
            await publisher.publish(RECEIPTS, receipt)
            printed = await publishing
            # Maven colours what it prints, even nothing.
            said = printed[printed.index(b"{") : printed.rindex(b"}") + 1]
            assert orjson.loads(said) == {"status": "routed"}
    finally:
        await link.close()


async def _publish(maven: str, *arguments: str) -> bytes:
    said = " ".join(f"'{argument}'" for argument in arguments)
    process = await asyncio.create_subprocess_exec(
        *(maven, "-q", "-B", "-f", str(FOLDER), "compile", "exec:java", f"-Dexec.args={said}"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode() + out.decode()
    return out


async def _declare(declare: Declare) -> None:
    await declare_client(declare)
    await declare.queue("t.intake", durable=False, exclusive=True)
    await declare.bind("t.intake", PUBLISH, "#")
