"""Locks the host for one run of a playbook. Prints the holder, as one JSON object.

    lock.py FOLDER RUN [INSTEAD]

FOLDER is the place where the host stores the holder. RUN is a JSON object with ``id``, ``who``,
``playbook``, ``machine`` and ``pid``. The output is the run that holds the lock afterwards, with
the ``seconds`` that it has held it. That is RUN itself, if the lock was free, or held by RUN or by
the run with the id INSTEAD.
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
    """Take the lock in ``folder`` if possible; return the holder. OSError if not writable."""
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
        # The user who logged in can then release the lock without sudo, which may need a password.
        os.chown(folder, int(os.environ.get("SUDO_UID", "-1")), -1)
        return run | {"seconds": 0}
    finally:
        os.close(place)


def read(holder: Path) -> dict[str, object] | None:
    """Return the run that a file names; None if there is no file, or no run in it."""
    try:
        found = json.loads(holder.read_text())
    except (FileNotFoundError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def main() -> None:
    """Run; see the module's docstring."""
    folder, run, *instead = sys.argv[1:]
    found = held(Path(folder), json.loads(run), "".join(instead), time.time())
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
