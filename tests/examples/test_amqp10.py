"""examples/amqp10: a publisher in AMQP 1.0, with Java's library, at a real RabbitMQ 4."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import orjson
import pytest

from localfabric.nodes.rabbitmq import LocalNode
from localfabric.world.rabbitmq_home import RabbitmqHome
from newsfabric.amqp import Declare, Delivery, Message, Properties
from newsfabric.amqp.link import connect
from newsfabric.messages.envelope import receive
from newsfabric.topology import PUBLISH, TO_QUEUES, declare_client

pytestmark = [pytest.mark.broker, pytest.mark.timeout(240)]

FOLDER = Path(__file__).parents[2] / "examples" / "amqp10"
TIMEOUT = 180.0


@pytest.fixture(scope="module")
def maven() -> str:
    """Compile the example with Maven, which has the library, and return Maven's path."""
    if (found := shutil.which("mvn")) is None:
        _missing("Maven is missing: `make setup` installs it")
    words = [found, "-q", "-B", "-f", FOLDER, "compile"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT)
    if done.returncode:
        _missing(f"the example can't be compiled: {done.stdout.partition(chr(10))[0]}")
    return found


def _missing(why: str) -> NoReturn:
    if os.environ.get("CI"):
        pytest.fail(why)
    pytest.skip(why)


@pytest.fixture
def entrance(rabbitmq_home: RabbitmqHome, tmp_path: Path) -> Iterator[LocalNode]:
    """Yield a broker set up for publishers: others refuse AMQP 1.0."""
    with LocalNode(tmp_path, rabbitmq_home, for_publishers=True) as node:
        yield node


async def test_a_publisher_in_amqp_1_0_gets_its_receipt(
    rabbitmq_home: RabbitmqHome, entrance: LocalNode, maven: str
) -> None:
    if int(rabbitmq_home.version.split(".")[0]) < 4:
        pytest.skip(f"RabbitMQ {rabbitmq_home.version} speaks AMQP 1.0 by a plugin alone")
    arrived: asyncio.Queue[Delivery] = asyncio.Queue()
    link = await connect([entrance.amqp_url], name="test")
    try:
        await link.on_connect(_declare)
        await link.consumer("t.intake", arrived.put_nowait)
        publisher = await link.publisher()
        await publisher.ready()
        url = entrance.amqp_url.replace("://", "://guest:guest@")
        body = '{"headline":"Größe"}'
        publishing = asyncio.create_task(_publish(maven, url, "cms", "news.breaking", body))
        async with asyncio.timeout(TIMEOUT):
            arriving = asyncio.create_task(arrived.get())
            await asyncio.wait([arriving, publishing], return_when=asyncio.FIRST_COMPLETED)
            assert arriving.done(), publishing.result()
            delivery = arriving.result()
            submission = receive(delivery.message, now_ms=0)
            assert (submission.app_id, submission.topic) == ("cms", "news.breaking")
            assert submission.body == body.encode()
            assert submission.reply_to is not None
            # The queue's name and the message's id aren't enough to forge a router's receipt.
            known = (submission.reply_to, submission.message_id)
            assert submission.correlation_id not in known
            answers = [(correlation, b'{"status":"rejected"}') for correlation in known]
            answers.append((submission.correlation_id, b'{"status":"routed"}'))
            for correlation, receipt in answers:
                properties = Properties(correlation_id=correlation)
                await publisher.publish(
                    TO_QUEUES, Message(submission.reply_to, receipt, properties)
                )
            printed = await publishing
            # Maven adds colour codes even to empty output.
            shown = printed[printed.index(b"{") : printed.rindex(b"}") + 1]
            assert orjson.loads(shown) == {"status": "routed"}
    finally:
        await link.close()


async def _publish(maven: str, *arguments: str) -> bytes:
    text = " ".join(f"'{argument}'" for argument in arguments)
    process = await asyncio.create_subprocess_exec(
        *(maven, "-q", "-B", "-f", str(FOLDER), "compile", "exec:java", f"-Dexec.args={text}"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode() + out.decode()
    assert b"SLF4J" not in err
    return out


async def _declare(declare: Declare) -> None:
    await declare_client(declare)
    await declare.queue("t.intake", durable=False, exclusive=True)
    await declare.bind("t.intake", PUBLISH, "#")
