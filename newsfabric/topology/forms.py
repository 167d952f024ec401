"""The topology in RabbitMQ's forms: definitions.json, shovel values, declarations."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from newsfabric.amqp import Declare
from newsfabric.errors import ConfigError
from newsfabric.settings import Credentials
from newsfabric.topics import TopicTable
from newsfabric.topology.parts import (
    CLIENT,
    CORE_EXCHANGES,
    RETAIL,
    core,
)
from newsfabric.topology.rights import User, limits, user_definitions
from newsfabric.topology.values import (
    DIRECT,
    VHOST,
    Binding,
    BrokerObjects,
    Exchange,
    Queue,
    ShovelLink,
)

# Seconds. A broker whose peer hangs notices after two heartbeats, closes the connection, and
# requeues the messages that the peer's shovel had fetched, for another shovel.
SHOVEL_HEARTBEAT: Final = 3

# RFC 3986 section 3.2: an authority ends at "/", "?" or "#". A "/" in a password isn't legal there,
# but is hidden all the same: up to the last "@" before a space or quote.
_LOGIN: Final = re.compile(r"//[^\s'\"]*@")


def shovel_value(link: ShovelLink, credentials: Credentials) -> dict[str, Any]:
    """Return the ``value`` of ``link``'s shovel parameter. It holds the password: never log it.

    A shovel that logs in at its destination sets ``user_id`` to its user there: that broker checks
    it, so no other user can set it.
    """
    logs_in = link.destinations != (DIRECT,)
    login = {"dest-publish-properties": {"user_id": credentials.username}} if logs_in else {}
    return {
        "src-protocol": "amqp091",
        "src-uri": _uris((link.source,), credentials),
        "src-queue": link.queue.name,
        # A shovel declares a missing source queue: with these arguments it is the same one.
        "src-queue-args": link.queue.bounds.arguments(),
        # Enough for a link of 100 ms at 10,000 messages a second.
        "src-prefetch-count": 1000,
        "src-delete-after": "never",
        "dest-protocol": "amqp091",
        "dest-uri": _uris(link.destinations, credentials),
        "dest-exchange": link.exchange,
        # Headers with its name (newsfabric.messages.hops), for races, canaries and traces.
        "dest-add-forward-headers": True,
        # The source keeps a message until the destination has it: duplicates, never losses.
        "ack-mode": "on-confirm" if link.confirmed else "on-publish",
        "reconnect-delay": 1,
        **login,
    }


def mask(text: str) -> str:
    """Return ``text`` with the login of every URI in it hidden; so URIs and errors may be shown."""
    return _LOGIN.sub("//***@", text)


def definitions(
    part: BrokerObjects,
    users: Iterable[User] = (),
    passwords: Mapping[str, str] = MappingProxyType({}),
    limits: Mapping[str, Any] = MappingProxyType({}),
) -> dict[str, Any]:
    """Return ``part`` as a RabbitMQ ``definitions.json``, with its users and without shovels.

    ``passwords`` has one for each of ``users``; ``limits`` bounds queues of others. A node that
    loads definitions makes no default user.
    """
    return {
        "vhosts": [{"name": VHOST}],
        "exchanges": [_exchange_definition(exchange) for exchange in part.exchanges],
        "queues": [_queue_definition(queue) for queue in part.queues],
        "bindings": [_binding_definition(binding) for binding in part.bindings],
        "parameters": [],
        **user_definitions(users, passwords),
        **limits,
    }


def client_definitions(
    taken: BrokerObjects,
    users: Iterable[User] = (),
    passwords: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Any]:
    """Return ``definitions.json`` of a client or proxy broker; shovels take from ``taken``.

    See :func:`newsfabric.topology.plan.taken_from`.
    """
    return definitions(CLIENT + taken, users, passwords, limits("client"))


def core_definitions(
    topics: TopicTable,
    users: Iterable[User] = (),
    passwords: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Any]:
    """Return ``definitions.json`` of a core broker."""
    return definitions(core(topics), users, passwords, limits("core"))


def retail_definitions(
    users: Iterable[User] = (), passwords: Mapping[str, str] = MappingProxyType({})
) -> dict[str, Any]:
    """Return ``definitions.json`` of a retail box's broker."""
    return definitions(RETAIL, users, passwords)


async def declare_part(declare: Declare, part: BrokerObjects) -> None:
    """Declare exchanges, queues and bindings of ``part``."""
    for exchange in part.exchanges:
        await declare.exchange(exchange.name, type=exchange.type)
    for queue in part.queues:
        await declare.queue(queue.name, arguments=queue.bounds.arguments())
    for binding in part.bindings:
        await declare.bind(binding.queue, binding.exchange, binding.key)


async def declare_client(declare: Declare) -> None:
    """Declare a client broker's exchanges, as :func:`declare_core` does for a core broker."""
    await declare_part(declare, CLIENT)


async def declare_core(declare: Declare) -> None:
    """Declare a core broker's exchanges, on a broker that has no definitions (tests, benches).

    Services declare none: a user that may declare an exchange may delete it.
    """
    await declare_part(declare, BrokerObjects(exchanges=CORE_EXCHANGES))


async def declare_retail(declare: Declare) -> None:
    """Declare a retail box's exchanges, queues and bindings."""
    await declare_part(declare, RETAIL)


def _exchange_definition(exchange: Exchange) -> dict[str, Any]:
    flags = {"durable": True, "auto_delete": False, "internal": False, "arguments": {}}
    return {"name": exchange.name, "vhost": VHOST, "type": exchange.type, **flags}


def _queue_definition(queue: Queue) -> dict[str, Any]:
    flags = {"durable": True, "auto_delete": False, "arguments": queue.bounds.arguments()}
    return {"name": queue.name, "vhost": VHOST, **flags}


def _binding_definition(binding: Binding) -> dict[str, Any]:
    return {
        "source": binding.exchange,
        "vhost": VHOST,
        "destination": binding.queue,
        "destination_type": "queue",
        "routing_key": binding.key,
        "arguments": {},
    }


def _uris(urls: Sequence[str], credentials: Credentials) -> str | list[str]:
    found = [url if url == DIRECT else _uri(url, credentials) for url in urls]
    return found[0] if len(found) == 1 else found


def _uri(url: str, credentials: Credentials) -> str:
    """Return ``url`` for RabbitMQ's Erlang client, which verifies no certificate by default."""
    parts = urlsplit(url)
    query = {"heartbeat": str(SHOVEL_HEARTBEAT)} | dict(parse_qsl(parts.query))
    if parts.scheme != "amqps":
        bare = urlunsplit(parts._replace(query=urlencode(query, safe="/")))
        return credentials.in_url(bare)
    tls = credentials.tls
    if tls.authorities is not None:
        query.setdefault("cacertfile", str(tls.authorities))
    if "cacertfile" not in query:
        raise ConfigError(
            f"a shovel to {parts.hostname} must know whom to trust: set NEWSFABRIC_TLS_CA_FILE to "
            "a file that brokers' hosts have, too"
        )
    query["verify"] = "verify_peer"
    if tls.certificate is not None:
        shown = {"certfile": str(tls.certificate), "keyfile": str(tls.key)}
        query |= shown | {"auth_mechanism": "external"}
    else:
        parts = urlsplit(credentials.in_url(url))
    return urlunsplit(parts._replace(query=urlencode(query, safe="/")))
