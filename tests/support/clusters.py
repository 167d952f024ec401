"""Client and core clusters in memory, with the exchanges of the topology, and boxes' reports."""

from __future__ import annotations

import dataclasses

from newsfabric.amqp import Message
from newsfabric.amqp.stub import StubBroker
from newsfabric.messages.control import LoadReport, encode_load
from newsfabric.topology import CLIENT, CORE_EXCHANGES, Exchange
from newsfabric.topology.roles import user_name


def client_cluster() -> StubBroker:
    return _with(CLIENT.exchanges)


def core_cluster() -> StubBroker:
    return _with(CORE_EXCHANGES)


def reported(report: LoadReport, *, by: str | None = None) -> Message:
    """Return ``report`` as the shovel of box ``by`` delivers it; by default the box it is about."""
    return sent_by_box(encode_load(report), by or report.box)


def sent_by_box(message: Message, box: str = "oregon-retail-1") -> Message:
    """Return ``message`` as the shovel of ``box`` delivers it, with that shovel's user id."""
    properties = dataclasses.replace(message.properties, user_id=user_name("box", box))
    return dataclasses.replace(message, properties=properties)


def _with(exchanges: tuple[Exchange, ...]) -> StubBroker:
    broker = StubBroker()
    for exchange in exchanges:
        broker.declare_exchange(exchange.name, exchange.type)
    return broker
