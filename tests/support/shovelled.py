"""Message headers with the marks of RabbitMQ's shovels."""

from __future__ import annotations

from typing import Any

from newsfabric.amqp.fields import decode_table, encode_table
from newsfabric.amqp.message import SHOVELLED


def shovelled(*shovels: str, **headers: object) -> dict[str, Any]:
    """Return ``headers`` of a message that was carried by ``shovels``, in this order."""
    tables = [
        {
            "shovelled-by": "oregon-core-1@localhost",
            "shovel-type": "dynamic",
            "shovel-name": name,
            "shovel-vhost": "/",
            "src-uri": "amqp://127.0.0.1:18110/%2F",
            "dest-uri": "amqp://",
        }
        for name in reversed(shovels)
    ]
    return decode_table(encode_table({**headers, SHOVELLED: tables})[4:])
