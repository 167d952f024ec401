"""Users with their rights, in RabbitMQ's form, and the rights of publishers. Pure.

Each publisher of topics.toml gets a user of its own on the client clusters, with its ``app_id`` as
name. The user may write to exchange ``publish``, with topics that match its patterns, and have
queues with names that the broker generates: enough to publish and to receive receipts, no more. The
fabric's own users are in :mod:`newsfabric.topology.roles`.
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

# Open connections and channels of one publisher at a time: a farm of PHP processes has a connection
# and up to three channels each.
PUBLISHER_LIMITS: Final = MappingProxyType({"max-connections": 1000, "max-channels": 3000})
# Limits of one box on a core broker: two feeds, its upstream, its agent; and connections that a bad
# network has cut, until the broker notices.
BOX_LIMITS: Final = MappingProxyType({"max-connections": 50, "max-channels": 150})


def topic_regex(pattern: str) -> str:
    """Return a regular expression, without anchors, of the topics that AMQP ``pattern`` matches."""
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
    """Return RabbitMQ's ``password_hash`` (rabbit_password_hashing_sha256); ``salt``: 4 bytes."""
    digest = hashlib.sha256(salt + password.encode()).digest()
    return base64.b64encode(salt + digest).decode("ascii")


def salt_of(name: str, password: str) -> bytes:
    """Return the salt of user ``name``: different for each user, the same for the same password.

    So newly generated definitions can be compared with those of a broker.
    """
    return hmac.digest(password.encode(), name.encode(), "sha256")[:4]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """A user of one cluster, and its rights there.

    ``configure``, ``write`` and ``read`` are regular expressions without anchors, one for each name
    or kind of names. ``topics`` has, by topic exchange, the routing keys that the user may write
    and read (bind); for other exchanges any key is allowed. ``limits`` are RabbitMQ's own.
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
        """Return the names that the user may configure, write and read."""
        return {
            "configure": one_of(self.configure),
            "write": one_of(self.write),
            "read": one_of(self.read),
        }

    def topic_permissions(self) -> list[dict[str, str]]:
        """Return the routing keys that the user may write and read, exchange by exchange."""
        return [
            {"exchange": exchange, "write": one_of(write), "read": one_of(read)}
            for exchange, (write, read) in self.topics.items()
        ]


def one_of(expressions: Iterable[str]) -> str:
    """Return an anchored regular expression that matches any whole match of ``expressions``."""
    listed = "|".join(dict.fromkeys(expressions))
    return f"^({listed})$" if listed else _NOTHING


def exactly(name: str) -> str:
    """Return ``name`` (letters, digits, ``_``, ``-``, ``.``, ``*``, ``#``) as an expression."""
    return re.sub(r"([.*])", r"\\\1", name)


def beginning(prefix: str) -> str:
    """Return a regular expression of the names that begin with ``prefix``."""
    return exactly(prefix) + ".*"


# Queues to which the broker gives a name. ``configure`` applies to exchanges and queues: under any
# other name the user could declare an exchange of its own, with an alternate exchange and bindings
# without limit.
NAMED: Final = beginning(NAMED_BY_BROKER)


def publisher(rights: PublisherRights) -> User:
    """Return the user of a publisher on a client cluster."""
    return User(
        name=rights.app_id,
        configure=(NAMED,),
        write=(PUBLISH,),
        read=(NAMED,),
        topics={PUBLISH: (tuple(map(topic_regex, rights.topics)), ())},
        limits=PUBLISHER_LIMITS,
    )


def limits(role: Role) -> dict[str, list[dict[str, Any]]]:
    """Return the part of a cluster's ``definitions.json`` that bounds the queues of others.

    An operator policy applies beside the owner's arguments: the smaller bound of both holds.
    """
    if role == "core":
        pattern, bounds = f"^{exactly(BOX_QUEUES)}", BOX_BOUNDS
    else:
        own = "|".join(map(exactly, OWN_QUEUES))
        pattern, bounds = f"^(?!{own})", OTHERS_BOUNDS
    parameters = [
        _bounded("others", pattern, bounds),
        # Keepers of other regions make some of these queues, with bounds of their choice.
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
    # A stream understands no operator policy of ours, so RabbitMQ (3.10.8) doesn't apply it to
    # streams, nor this policy to other queues. For a stream a policy overrides its owner's
    # arguments, and whole segments are deleted. The fabric has no streams.
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
    """Return the part of a cluster's ``definitions.json`` for ``users``.

    ``passwords`` has one for each name; the result has only its hash.
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
