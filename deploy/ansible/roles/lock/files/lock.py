"""Holds the host for one run of a playbook. Says who holds it now, as one JSON object.

    lock.py FOLDER RUN [INSTEAD]

FOLDER is where the host keeps who holds it. RUN is a JSON object with ``id``, ``who``,
``playbook``, ``machine`` and ``pid``. The answer is that of the run that holds the host afterwards,
with ``seconds`` since it does: RUN itself, if nobody held the host before, or the run with the id
INSTEAD.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import time
from pathlib import Path

NAME = "holder"


def held(folder: Path, run: dict[str, object], instead: str, now: float) -> dict[str, object]:
    """Who holds the host of ``folder`` now. OSError if nothing can be written there."""
    folder.mkdir(mode=0o755, exist_ok=True)
    place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        # Another run may ask at the same time.
        fcntl.flock(place, fcntl.LOCK_EX)
        holder = folder / NAME
        before = read(holder)
        if before is not None and before.get("id") not in (run["id"], instead):
            return before | {"seconds": int(now - holder.stat().st_mtime)}
        new = folder / f"{NAME}.new"
        new.write_text(json.dumps(run))
        new.rename(holder)
        # Who logged in gives it back without sudo, for which he may have to be asked.
        os.chown(folder, int(os.environ.get("SUDO_UID", "-1")), -1)
        return run | {"seconds": 0}
    finally:
        os.close(place)


def read(holder: Path) -> dict[str, object] | None:
    """The run that a file names; None if there is no file, or no run in it."""
    try:
        found = json.loads(holder.read_text())
    except (FileNotFoundError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def main() -> None:
    """See the module's docstring."""
    folder, run, *instead = sys.argv[1:]
    found = held(Path(folder), json.loads(run), "".join(instead), time.time())
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
