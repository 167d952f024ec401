"""A RabbitMQ node with a cluster's generated definitions, and its users' attempts there.

The attempts use pika, because newsfabric's own link would retry.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pika
import pytest
from fabrics import fabric
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker

from localfabric.nodes.rabbitmq import LocalNode
from localfabric.world.rabbitmq_home import RabbitmqHome
from newsfabric.settings import Credentials
from newsfabric.topics import PublisherRights, TopicTable, parse_topics
from newsfabric.topology import BrokerObjects, Cluster, Role, client_definitions, core_definitions
from newsfabric.topology.rights import publisher
from newsfabric.topology.roles import cluster_users, operator

BOXES: Final = ("edge-1", "edge-2")
TOPICS: Final[TopicTable] = parse_topics(
    {
        "topic": [
            {"pattern": "news.breaking", "class": "gold"},
            {"pattern": "user.*", "access": "owner"},
            {"pattern": "news.#"},
        ]
    }
)
PUBLISHERS: Final = (PublisherRights("cms", ("news.#",)), PublisherRights("web", ("news.*",)))
# The password of all users.
_PASSWORD: Final = "pass-word"

Attempt = Callable[[BlockingChannel], object]


@dataclasses.dataclass(frozen=True)
class Guarded:
    """A node with the definitions loaded."""

    node: LocalNode

    def url(self, user: str) -> str:
        return Credentials(user, _PASSWORD).in_url(self.node.amqp_url)

    def connect(self, user: str) -> pika.BlockingConnection:
        return pika.BlockingConnection(pika.URLParameters(self.url(user)))

    def refuses(self, user: str, *attempts: Attempt) -> None:
        """Check that each of ``attempts`` ends with a closed channel for lack of rights (403)."""
        with self.connect(user) as connection:
            for attempt in attempts:
                with pytest.raises(ChannelClosedByBroker) as refusal:
                    attempt(opened(connection))
                assert refusal.value.reply_code == 403, refusal.value.reply_text

    def takes(self, user: str, *attempts: Attempt) -> None:
        """Check that each of ``attempts`` succeeds."""
        with self.connect(user) as connection:
            for attempt in attempts:
                attempt(opened(connection))

    def api(self, user: str, path: str, method: str = "GET", body: Any = None) -> int:
        """Return the status of the management API's answer to ``user``."""
        login = b64encode(f"{user}:{_PASSWORD}".encode()).decode()
        headers = {"Authorization": f"Basic {login}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"{self.node.management_url}/api{path}", data, headers, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as exc:
            with exc:
                return exc.code


def opened(connection: pika.BlockingConnection) -> BlockingChannel:
    """Open a channel with confirms."""
    channel = connection.channel()
    channel.confirm_delivery()
    return channel


def publishes(exchange: str, key: str, body: bytes = b"{}", **properties: Any) -> Attempt:
    """Return an attempt to publish a message that waits for the broker's confirm."""
    sent = pika.BasicProperties(**properties)
    return lambda channel: channel.basic_publish(exchange, key, body, sent)


@contextlib.contextmanager
def guarded(role: Role, folder: Path, home: RabbitmqHome) -> Iterator[Guarded]:
    """Run oregon's one broker of ``role``, in a fabric with dublin and a proxy cluster."""
    users = [
        operator("root"),
        *cluster_users(
            fabric(proxy=1), TOPICS, Cluster("oregon", role), BOXES if role == "core" else ()
        ),
    ]
    if role == "core":
        passwords = {user.name: _PASSWORD for user in users}
        document = core_definitions(TOPICS, users, passwords)
    else:
        users += map(publisher, PUBLISHERS)
        document = client_definitions(
            BrokerObjects(), users, {user.name: _PASSWORD for user in users}
        )
    definitions = folder / "definitions.json"
    definitions.write_text(json.dumps(document), "utf-8")
    local = LocalNode(folder, home, definitions=definitions, for_publishers=role == "client")
    with local:
        yield Guarded(local)
