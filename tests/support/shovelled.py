"""Headers as RabbitMQ's shovels leave them."""

from __future__ import annotations

from typing import Any

from newsfabric.amqp.fields import decode_table, encode_table
from newsfabric.amqp.message import SHOVELLED


def shovelled(*shovels: str, **headers: object) -> dict[str, Any]:
    """``headers`` as they arrive after ``shovels``, the last one last."""
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
