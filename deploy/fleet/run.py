"""Running programs: their output is kept, and shown when they fail."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from fleet.errors import FleetError

_LAST_LINES: Final = 12


def run(*command: str | Path, seconds: float = 60) -> str:
    """Return the program's stdout. FleetError if it fails, with the end of its output."""
    shown = " ".join(str(word) for word in command)
    try:
        done = subprocess.run(
            [str(word) for word in command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
        )
    except OSError as exc:
        raise FleetError(f"{command[0]}: {exc.strerror or exc}") from exc
    except subprocess.TimeoutExpired as exc:
        raise FleetError(f"not done within {seconds:g} s: {shown}") from exc
    if done.returncode != 0:
        raise FleetError(
            f"exit code {done.returncode}: {shown}\n{_end(done.stderr or done.stdout)}"
        )
    return done.stdout


def run_logged(command: Sequence[str | Path], log: Path, *, seconds: float) -> None:
    """Run a long command with its output in ``log``. FleetError if it fails, with the log's end."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a") as out:
        out.write(f"\n$ {' '.join(str(word) for word in command)}\n")
        out.flush()
        try:
            done = subprocess.run(
                [str(word) for word in command],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                timeout=seconds,
                check=False,
            )
        except OSError as exc:
            raise FleetError(f"{command[0]}: {exc.strerror or exc}") from exc
        except subprocess.TimeoutExpired as exc:
            raise FleetError(f"{command[0]}: not done within {seconds:g} s; see {log}") from exc
    if done.returncode != 0:
        raise FleetError(f"{command[0]}: exit code {done.returncode}\n{end_of(log)}")


def end_of(log: Path) -> str:
    """Return the last lines of a log, and its path, to be shown below an error."""
    end = _end(log.read_text(errors="replace")) if log.exists() else ""
    return f"{end}\n    ({log})"


def _end(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.strip().splitlines()[-_LAST_LINES:])
