"""Users with their rights, in the form that RabbitMQ takes, and those of publishers. Pure.

Each publisher of topics.toml gets a user of its own on the client clusters, named as its
``app_id``. It may write to exchange ``publish``, with topics that match its patterns, and have
queues that the broker gives a name: enough to publish and to get its receipts, and no more.
The fabric's own users are in :mod:`newsfabric.topology.roles`.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

from newsfabric.topics import PublisherRights
from newsfabric.topology.parts import BOX_QUEUES, NAMED_BY_BROKER, OWN_QUEUES, SHOVEL_QUEUES
from newsfabric.topology.values import (
    BOX_BOUNDS,
    MAX_QUEUES,
    MIB,
    OTHERS_BOUNDS,
    PUBLISH,
    REGION_BOUNDS,
    VHOST,
    Bounds,
    Role,
)

_WORD: Final = "[^.]+"
_NOTHING: Final = "^$"

# What one publisher may have open at a time: a farm of PHP processes has a connection and up to
# three channels each.
PUBLISHER_LIMITS: Final = MappingProxyType({"max-connections": 1000, "max-channels": 3000})
# And one box on a core broker: two feeds, what goes up, its agent; and those that a bad network has
# cut, until the broker finds out.
BOX_LIMITS: Final = MappingProxyType({"max-connections": 50, "max-channels": 150})


def topic_regex(pattern: str) -> str:
    """The topics that AMQP ``pattern`` matches, as a regular expression without anchors."""
    words = pattern.split(".")
    # "#.#" is "#": any number of words.
    words = [word for n, word in enumerate(words) if word != "#" or words[n - 1 : n] != ["#"]]
    if words == ["#"]:
        return rf"{_WORD}(\.{_WORD})*"
    text, dot = "", ""
    for n, word in enumerate(words, 1):
        if word != "#":
            text += dot + (_WORD if word == "*" else word)
            dot = r"\."
        elif n == len(words):
            text += rf"(\.{_WORD})*"
        else:
            text += rf"{dot}({_WORD}\.)*"
            dot = ""
    return text


def hash_password(password: str, salt: bytes) -> str:
    """RabbitMQ's ``password_hash`` (rabbit_password_hashing_sha256); ``salt`` has four bytes."""
    digest = hashlib.sha256(salt + password.encode()).digest()
    return base64.b64encode(salt + digest).decode("ascii")


def salt_of(name: str, password: str) -> bytes:
    """The salt of user ``name``: another for each user, the same for the same password.

    So definitions that are made again can be compared with those that a broker has.
    """
    return hmac.digest(password.encode(), name.encode(), "sha256")[:4]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """A user of one cluster, and what it may do there.

    ``configure``, ``write`` and ``read`` are regular expressions without anchors, one for each name
    or kind of names. ``topics`` has for topic exchanges those of the routing keys that it may write
    and read (bind); where an exchange isn't there, any key goes. ``limits`` are RabbitMQ's own.
    """

    name: str
    tags: tuple[str, ...] = ()
    configure: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    topics: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = dataclasses.field(
        default_factory=dict
    )
    limits: Mapping[str, int] = dataclasses.field(default_factory=dict)

    def permissions(self) -> dict[str, str]:
        """What it may configure, write and read."""
        return {
            "configure": one_of(self.configure),
            "write": one_of(self.write),
            "read": one_of(self.read),
        }

    def topic_permissions(self) -> list[dict[str, str]]:
        """Which routing keys it may write and read, exchange by exchange."""
        return [
            {"exchange": exchange, "write": one_of(write), "read": one_of(read)}
            for exchange, (write, read) in self.topics.items()
        ]


def one_of(expressions: Iterable[str]) -> str:
    """One regular expression, with anchors, for what one of ``expressions`` matches as a whole."""
    listed = "|".join(dict.fromkeys(expressions))
    return f"^({listed})$" if listed else _NOTHING


def exactly(name: str) -> str:
    """``name`` (letters, digits, ``_``, ``-``, ``.``, ``*``, ``#``) as a regular expression."""
    return re.sub(r"([.*])", r"\\\1", name)


def beginning(prefix: str) -> str:
    """Names that begin with ``prefix``."""
    return exactly(prefix) + ".*"


# Queues to which the broker gives a name. ``configure`` counts for exchanges as for queues: under
# any other name that a user may declare there may be an exchange of its own, with an alternate
# exchange and bindings without end.
NAMED: Final = beginning(NAMED_BY_BROKER)


def publisher(rights: PublisherRights) -> User:
    """The user of a publisher on a client cluster."""
    return User(
        name=rights.app_id,
        configure=(NAMED,),
        write=(PUBLISH,),
        read=(NAMED,),
        topics={PUBLISH: (tuple(map(topic_regex, rights.topics)), ())},
        limits=PUBLISHER_LIMITS,
    )


def limits(role: Role) -> dict[str, list[dict[str, Any]]]:
    """The part of a cluster's ``definitions.json`` that bounds what others declare there.

    An operator policy counts beside what a queue's owner says of it, and the lesser of both holds.
    """
    if role == "core":
        pattern, bounds = f"^{exactly(BOX_QUEUES)}", BOX_BOUNDS
    else:
        own = "|".join(map(exactly, OWN_QUEUES))
        pattern, bounds = f"^(?!{own})", OTHERS_BOUNDS
    parameters = [
        _bounded("others", pattern, bounds),
        # Some are made by keepers of other regions, who say themselves how much they may hold.
        _bounded("shovels", f"^{exactly(SHOVEL_QUEUES)}", REGION_BOUNDS),
        {
            "component": "vhost-limits",
            "vhost": VHOST,
            "name": "limits",
            "value": {"max-queues": MAX_QUEUES},
        },
    ]
    return {"parameters": parameters, "policies": [_streams()]}


def _bounded(name: str, pattern: str, bounds: Bounds) -> dict[str, Any]:
    policy = {
        "pattern": pattern,
        "apply-to": "queues",
        "priority": 0,
        "definition": bounds.policy(),
    }
    return {"component": "operator_policy", "vhost": VHOST, "name": name, "value": policy}


def _streams() -> dict[str, Any]:
    # The operator policies say what no stream understands, so RabbitMQ (3.10.8) doesn't apply them
    # to one, nor this one to other queues. For a stream a policy counts more than what its owner
    # says, and whole segments go. The fabric has no streams.
    definition = {"max-length-bytes": OTHERS_BOUNDS.max_bytes, "stream-max-segment-size-bytes": MIB}
    return {
        "vhost": VHOST,
        "name": "streams",
        "pattern": ".*",
        "apply-to": "queues",
        "priority": 0,
        "definition": definition,
    }


def user_definitions(
    users: Iterable[User], passwords: Mapping[str, str]
) -> dict[str, list[dict[str, Any]]]:
    """The part of a cluster's ``definitions.json`` that is about ``users``.

    ``passwords`` has one for each name; only its hash is in what is returned.
    """
    listed = list(users)
    return {
        "users": [
            {
                "name": user.name,
                "password_hash": _hash_of(user.name, passwords[user.name]),
                "hashing_algorithm": "rabbit_password_hashing_sha256",
                "tags": list(user.tags),
                "limits": dict(user.limits),
            }
            for user in listed
        ],
        "permissions": [
            {"user": user.name, "vhost": VHOST, **user.permissions()} for user in listed
        ],
        "topic_permissions": [
            {"user": user.name, "vhost": VHOST, **each}
            for user in listed
            for each in user.topic_permissions()
        ],
    }


def _hash_of(name: str, password: str) -> str:
    return hash_password(password, salt_of(name, password))
