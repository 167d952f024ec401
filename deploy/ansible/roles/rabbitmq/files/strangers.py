#!/usr/bin/env python3
"""Deletes the users of a broker that its definitions don't have, and prints their names.

    strangers.py DEFINITIONS

RabbitMQ closes their connections. Users of boxes of an autoscaling group stay: `newsfabric-admit`
makes and deletes these. A broker that doesn't run is left alone.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

# As operations.instance knows instances.
_ADMITTED: Final = re.compile(r"box\.i-[0-9a-f]{8,17}")


def strangers(definitions: str, users: str) -> list[str]:
    """Return the names in ``users`` (JSON of rabbitmqctl) that are not in ``definitions``."""
    wanted = {user["name"] for user in json.loads(definitions)["users"]}
    known = {user["user"] for user in json.loads(users)}
    return sorted(name for name in known - wanted if not _ADMITTED.fullmatch(name))


def main() -> None:
    """Run; see the module's docstring."""
    active = ["systemctl", "is-active", "--quiet", "rabbitmq-server"]
    if subprocess.run(active, check=False).returncode:
        return
    command = ["rabbitmqctl", "--quiet"]
    listed = subprocess.run(
        [*command, "--formatter", "json", "list_users"],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    for name in strangers(Path(sys.argv[1]).read_text(), listed.stdout):
        subprocess.run([*command, "delete_user", name], check=True, stdout=subprocess.DEVNULL)
        sys.stdout.write(f"{name}\n")


if __name__ == "__main__":
    main()
