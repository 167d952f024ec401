"""The canaries of a keeper, when they come back."""

from __future__ import annotations

import asyncio
import dataclasses
import random

from fabrics import CREDENTIALS, TOPICS, broker, fabric
from metric_values import value
from shovelled import shovelled

from newsfabric.amqp import Delivery
from newsfabric.messages.control import Canary, encode_canary
from newsfabric.topology import region_links
from shovels.canaries import FORGED, Canaries
from shovels.watch import CanaryWatch

REGION = "oregon"
LINK = "oregon/core/publish.oregon.1"


def arrival(token: str, sent_ms: int, user_id: str = CREDENTIALS.username) -> Delivery:
    """Return a canary of ``user_id`` that shovel ``publish.oregon.1`` has carried."""
    canary = Canary(region=REGION, token=token, sent_ms=sent_ms)
    message = encode_canary(canary, user_id=user_id)
    headers = shovelled("publish.oregon.1")
    properties = dataclasses.replace(message.properties, headers=headers)
    return Delivery(dataclasses.replace(message, properties=properties), False, 1, 1)


async def test_one_that_was_not_sent_yet_is_forged_and_not_believed() -> None:
    made = fabric(client=1, core=3)
    watch = CanaryWatch(region_links(made, REGION, TOPICS), random.Random(1))
    canaries = Canaries(made, REGION, watch, CREDENTIALS)
    host, before = broker("oregon-core-1"), value(FORGED)
    now = asyncio.get_running_loop().time()
    later = round(1000 * (now + 3600))
    canaries._arrived(host, arrival(canaries._token, later))
    assert (watch.ages(now)[LINK], value(FORGED)) == (None, before + 1)
    canaries._arrived(host, arrival(canaries._token, round(1000 * (now - 1))))
    age = watch.ages(now)[LINK]
    assert age is not None
    assert 0.99 < age < 1.01


async def test_one_under_another_login_is_forged_whatever_token_it_has() -> None:
    made = fabric(client=1, core=3)
    watch = CanaryWatch(region_links(made, REGION, TOPICS), random.Random(1))
    canaries = Canaries(made, REGION, watch, CREDENTIALS)
    now, before = asyncio.get_running_loop().time(), value(FORGED)
    forged = arrival(canaries._token, round(1000 * (now - 1)), "cms")
    canaries._arrived(broker("oregon-core-1"), forged)
    assert (watch.ages(now)[LINK], value(FORGED)) == (None, before + 1)
