"""Prints this machine's services as JSON. The program is sent to machines and run there.

So it imports nothing but the standard library, and works with Python 3.10 and later. A gateway is
asked for its load and its engine, at the admin port of its command line.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

UNITS = ("newsfabric-*.service", "rabbitmq-server.service", "cassandra.service")
PROPERTIES = (
    *("Id", "LoadState", "ActiveState", "UnitFileState", "MainPID"),
    *("ConditionResult", "ConditionTimestampMonotonic"),
)
GATEWAY = "newsfabric-gateway"
_SECONDS = 5.0
_MOST_BYTES = 65_536


def units(output: str) -> list[dict[str, object]]:
    """Parse the output of ``systemctl show``: name, state and main process of each unit."""
    found: list[dict[str, object]] = []
    for block in output.strip().split("\n\n"):
        fields = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        if _is_wanted(fields):
            pid = int(fields.get("MainPID", "0"))
            found.append(
                {
                    "unit": fields["Id"].rpartition(".")[0],
                    "active": fields.get("ActiveState", ""),
                    "pid": pid or None,
                    "stopped": bool(pid) and process_state(pid) == "T",
                }
            )
    return sorted(found, key=lambda one: str(one["unit"]))


def _is_wanted(fields: dict[str, str]) -> bool:
    """Return whether a unit is installed and should run.

    Templates are left out, and inactive units that are disabled, or for which systemd has found a
    ``Condition…=`` unmet: systemd doesn't start these, and that is no failure (systemd.unit(5)).
    """
    unmet = fields.get("ConditionResult") == "no"
    asked = fields.get("ConditionTimestampMonotonic", "0") != "0"
    not_here = fields.get("UnitFileState") == "disabled" or (unmet and asked)
    idle = fields.get("ActiveState") == "inactive" and not_here
    return fields.get("LoadState") == "loaded" and "@." not in fields.get("Id", "") and not idle


def admin_port(pid: int) -> str | None:
    """Return the admin port of a gateway's process; None if its command line has none."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return None
    named = dict(itertools.pairwise(words))
    port = named.get("--admin-port", "")
    return port if port.isdecimal() else None


def process_state(pid: int) -> str | None:
    """Return the letter of proc(5); None if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return None


def fetch_json(url: str) -> object:
    """Return the JSON at ``url``; None without a valid answer."""
    try:
        with urllib.request.urlopen(url, timeout=_SECONDS) as response:  # noqa: S310
            return json.loads(response.read(_MOST_BYTES))
    except (OSError, ValueError, urllib.error.URLError):
        return None


def main() -> None:
    """Print the units, and the gateway's answers, as JSON; each request has five seconds."""
    done = subprocess.run(
        ["systemctl", "show", "--all", f"--property={','.join(PROPERTIES)}", *UNITS],
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=True,
    )
    found = units(done.stdout)
    seen: dict[str, object] = {"units": found}
    pids = [one["pid"] for one in found if one["unit"] == GATEWAY]
    port = admin_port(pids[0]) if pids and isinstance(pids[0], int) else None
    if port is not None:
        for what in ("load", "engine"):
            seen[what] = fetch_json(f"http://127.0.0.1:{port}/{what}")
    sys.stdout.write(json.dumps(seen))


if __name__ == "__main__":
    main()
