"""A developer: unpacks newsfabric and runs the commands of the README.

Only `make setup`, `up` and `down` are left to this run, and to tests/e2e/test_the_world.py.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from packed import printed
from worlds import World

pytestmark = [pytest.mark.slow, pytest.mark.world, pytest.mark.timeout(420)]

# A replay takes minutes; the other commands were run by another test or fixture.
LEFT_OUT = ("make ", ". .venv", "newsfabric up", "newsfabric down", "newsfabric replay")
COMMAND = """set -e
newsfabric() {{ '{python}' -m operations.cli "$@" --state '{state}'; }}
python() {{ '{python}' "$@"; }}
{block}
wait
"""


def commands(checkout: Path) -> str:
    """Return the commands of "See a headline cross the fabric", as far as they are played here."""
    readme = (checkout / "README.md").read_text("utf-8")
    section = readme.partition("## See a headline cross the fabric\n")[2].partition("\n## ")[0]
    lines = "".join(re.findall(r"```sh\n(.+?)```", section, re.DOTALL)).splitlines()
    assert sum(line.startswith(LEFT_OUT) for line in lines) == len(LEFT_OUT)
    return "\n".join(line for line in lines if not line.startswith(LEFT_OUT))


def test_a_headline_crosses_the_fabric_by_the_readmes_commands(
    world: World, unpacked: Path
) -> None:
    block = commands(unpacked)
    for written, here in (
        ("amqp://127.0.0.1:18110/%2F", world.amqp_url("oregon")),
        # A busy machine takes longer than a human reader would wait.
        ("--timeout 20", "--timeout 120"),
    ):
        assert written in block
        block = block.replace(written, here)
    script = COMMAND.format(python=sys.executable, state=world.state, block=block)
    environ = {"PYTHONPATH": str(unpacked)}
    where = "import newsfabric; print(newsfabric.__file__)"
    assert printed([sys.executable, "-c", where], unpacked, environ).startswith(str(unpacked))
    output = printed(["bash", "-c", script], unpacked, environ)
    # In any order: tail is in the background. A message of an earlier test may be the last.
    (pushed,) = (json.loads(line) for line in output.splitlines() if line.startswith("{"))
    assert pushed["topic"] == "news.breaking"
    assert re.search(r"^[0-9a-f-]{36}$", output, re.MULTILINE)
    assert "oregon" in output
