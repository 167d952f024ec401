"""A RabbitMQ that can be found, and not run: files laid out as the packages lay them out."""

from __future__ import annotations

from pathlib import Path


def tree(folder: Path, version: str) -> str:
    """Make ``folder`` look like an unpacked RabbitMQ ``version`` with its Erlang; returns it."""
    for program in (
        f"usr/lib/rabbitmq/lib/rabbitmq_server-{version}/sbin/rabbitmq-server",
        "usr/lib/erlang/bin/erl",
        "usr/lib/erlang/bin/epmd",
    ):
        path = folder / program
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o755)
    server = folder / f"usr/lib/rabbitmq/lib/rabbitmq_server-{version}"
    (server / "plugins" / f"rabbit-{version}").mkdir(parents=True)
    return str(folder)
