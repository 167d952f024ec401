"""The conformance tools, which are installed into ``.tools`` at their first use."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

from newsfabric.errors import SetupError

ROOT: Final = Path(__file__).resolve().parents[2]
_PLACES: Final = {
    "autobahn": ROOT / ".tools/autobahn/venv/bin/wstest",
    "sockjs_node": ROOT / ".tools/sockjs-node",
}


def installed(what: str) -> Path:
    """Return the path of ``autobahn`` or ``sockjs_node``; SetupError, with the reason, without it.

    ``scripts/setup`` installs it if it is missing or old, and lets only one installation run.
    """
    ended = subprocess.run(
        [ROOT / "scripts/setup", what], capture_output=True, text=True, check=False
    )
    if ended.returncode:
        reason = ended.stderr.strip().splitlines()[-1:] or ["scripts/setup failed"]
        raise SetupError(reason[0].removeprefix("error: "))
    return _PLACES[what]
