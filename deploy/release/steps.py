"""Steps, their outcomes, and the runner, which is independent of the steps' work."""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

Status = Literal["ok", "skipped", "failed"]

_TAIL_LINES: Final = 15
_SECONDS: Final = 900.0


class Skipped(Exception):
    """The step can't be done here; the text gives the reason and the remedy."""


class Failed(Exception):
    """The step found an error; the text is for a person."""


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one step. ``seconds`` is elapsed time."""

    name: str
    status: Status
    detail: str
    seconds: float


@dataclasses.dataclass(frozen=True, slots=True)
class Release:
    """The release: ``root`` is the checkout, ``work`` a folder that is removed afterwards."""

    root: Path
    dist: Path
    work: Path
    version: str

    def tool(self, name: str) -> str:
        """Return a program of ``.tools/release``; Skipped if it is missing."""
        program = self.root / ".tools" / "release" / "bin" / name
        if not program.is_file():
            raise Skipped(f"{name} is missing: run `scripts/setup release`")
        return str(program)


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """A step; ``do`` returns a line about the work done."""

    name: str
    what: str
    do: Callable[[Release], str]
    needs: tuple[str, ...] = ()
    """Names of earlier steps; without all of them this one is skipped."""


def run_steps(
    steps: Sequence[Step],
    release: Release,
    begun: Callable[[Step], None],
    ended: Callable[[Outcome], None],
) -> list[Outcome]:
    """Run ``steps`` in their order; a step is skipped if one that it needs is not ok."""
    outcomes: dict[str, Outcome] = {}
    for step in steps:
        begun(step)
        lacking = [name for name in step.needs if not _is_ok(outcomes.get(name))]
        start = time.monotonic()
        status: Status = "ok"
        try:
            if lacking:
                raise Skipped(f"it needs {', '.join(lacking)}")
            detail = step.do(release)
        except Skipped as exc:
            status, detail = "skipped", str(exc)
        except Failed as exc:
            status, detail = "failed", str(exc)
        outcome = Outcome(step.name, status, detail, round(time.monotonic() - start, 1))
        outcomes[step.name] = outcome
        ended(outcome)
    return list(outcomes.values())


def _is_ok(outcome: Outcome | None) -> bool:
    return outcome is not None and outcome.status == "ok"


def chosen(steps: Sequence[Step], names: Sequence[str]) -> list[Step]:
    """Return the steps of these names and all that they need, in the order of ``steps``."""
    needs = {step.name: step.needs for step in steps}
    wanted, waiting = set[str](), list(names)
    while waiting:
        name = waiting.pop()
        if name not in wanted:
            wanted.add(name)
            waiting.extend(needs[name])
    return [step for step in steps if step.name in wanted]


def run(
    command: Sequence[str | Path],
    cwd: Path,
    *,
    environ: Mapping[str, str] | None = None,
    good: tuple[int, ...] = (0,),
) -> str:
    """Run a program and return its standard output.

    Failed with the end of its output if its exit code isn't in ``good``.
    """
    words = [str(word) for word in command]
    try:
        done = subprocess.run(
            words,
            cwd=cwd,
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=_SECONDS,
        )
    except subprocess.TimeoutExpired as exc:
        raise Failed(f"{words[0]} took longer than {_SECONDS:.0f} s") from exc
    if done.returncode not in good:
        tail = (done.stdout + done.stderr).strip().splitlines()[-_TAIL_LINES:]
        shown = " ".join([Path(words[0]).name, *words[1:]])
        raise Failed("\n".join([f"{shown} ended with {done.returncode}", *tail]))
    return done.stdout


def need(program: str, how: str) -> str:
    """Return the path of an outside program; Skipped with ``how`` to get it."""
    found = shutil.which(program)
    if found is None:
        raise Skipped(f"{program} is missing: {how}")
    return found


def nearly_empty(home: Path) -> dict[str, str]:
    """Return the environment of a rehearsal: its own home, and no variables of the checkout.

    Registries' mirrors and proxies are kept: they name the source of packages, not things here.
    """
    home.mkdir(parents=True, exist_ok=True)
    keep = ("PIP_", "npm_config_registry", "COMPOSER_MIRROR", "SSL_CERT", "JAVA_HOME")
    proxies = ("http_proxy", "https_proxy", "no_proxy")
    kept = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(keep) or name.lower() in proxies
    }
    return {
        **kept,
        "HOME": str(home),
        "PATH": os.environ.get("PATH", os.defpath),
        "LANG": "C.UTF-8",
    }
