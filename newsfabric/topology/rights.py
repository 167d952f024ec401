"""Publishers' rights as RabbitMQ users, permissions and topic permissions. Pure.

Each publisher of topics.toml gets a user of its own on the client clusters, named as its
``app_id``. It may write to exchange ``publish``, with topics that match its patterns, and own
queues whose names begin with its own: enough to publish and to get its receipts, and no more.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import Iterable, Mapping
from typing import Any, Final

from newsfabric.topics import PublisherRights
from newsfabric.topology.values import PUBLISH, RECEIPTS, VHOST

_WORD: Final = "[^.]+"
_NOTHING: Final = "^$"


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


def permissions(app_id: str) -> dict[str, str]:
    """What ``app_id`` may configure, write and read on a client cluster."""
    own = rf"{app_id}\..*"
    return {
        "configure": f"^{own}",
        "write": f"^({PUBLISH}|{own})$",
        "read": f"^({RECEIPTS}|{own})$",
    }


def topic_permission(rights: PublisherRights) -> dict[str, str]:
    """Which topics ``rights`` lets a publisher write to exchange ``publish``."""
    patterns = "|".join(topic_regex(pattern) for pattern in rights.topics)
    return {"exchange": PUBLISH, "write": f"^({patterns})$", "read": _NOTHING}


def publisher_definitions(
    publishers: Iterable[PublisherRights], passwords: Mapping[str, str]
) -> dict[str, list[dict[str, Any]]]:
    """The part of a client cluster's ``definitions.json`` that is about ``publishers``.

    ``passwords`` has one for each ``app_id``; only its hash is in what is returned.
    """
    listed = list(publishers)
    return {
        "users": [
            {
                "name": rights.app_id,
                "password_hash": hash_password(passwords[rights.app_id], secrets.token_bytes(4)),
                "hashing_algorithm": "rabbit_password_hashing_sha256",
                "tags": [],
                "limits": {},
            }
            for rights in listed
        ],
        "permissions": [
            {"user": rights.app_id, "vhost": VHOST, **permissions(rights.app_id)}
            for rights in listed
        ],
        "topic_permissions": [
            {"user": rights.app_id, "vhost": VHOST, **topic_permission(rights)} for rights in listed
        ],
    }
