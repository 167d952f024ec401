"""A RabbitMQ that can be found but not run: files laid out like those of the packages."""

from __future__ import annotations

from pathlib import Path


def tree(folder: Path, version: str) -> str:
    """Make ``folder`` look like an unpacked RabbitMQ ``version`` with Erlang; return its path."""
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
