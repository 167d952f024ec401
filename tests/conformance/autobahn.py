"""``python tests/conformance/autobahn.py``: the Autobahn TestSuite against the data plane.

Each case's behaviour must be OK, or be one of :data:`JUSTIFIED`; and all results must equal
``autobahn.txt`` beside this file, so that a change of behaviour is a change of that file.
``--write`` writes the file. Cases given on the command line (``1.* 9.1.1``) are run alone.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from echo_dataplane import echoing
from installed import installed

ROOT: Final = Path(__file__).resolve().parents[2]
RESULTS: Final = Path(__file__).with_name("autobahn.txt")
# All groups but 8 (empty) and 11 (permessage-compress, a draft that was never agreed on).
ALL: Final = ("1.*", "2.*", "3.*", "4.*", "5.*", "6.*", "7.*", "9.*", "10.*", "12.*", "13.*")
QUICK: Final = ("1.1.*", "2.*", "3.*", "4.*", "5.*", "6.*", "7.*", "9.1.1", "9.2.1", "10.*",
                "12.1.1", "12.1.10", "13.1.1", "13.4.1")  # fmt: skip
AGENT: Final = "dataplane"
# The behaviour of a case, and the way in which its connection was closed.
Outcome = tuple[str, str]
# RFC 6455 leaves these to us; the suite only reports the behaviour.
JUSTIFIED: Final[dict[str, str]] = {
    "7.1.6": "a close frame right behind a message of 256 KiB: the suite judges neither order",
    "7.13.1": "close code 5000: the suite judges no answer (RFC 6455 section 7.4.2; ours is 1002)",
    "7.13.2": "close code 65535: as 7.13.1",
}


def faults(outcomes: dict[str, Outcome]) -> list[str]:
    """Return the outcomes that no run may have, one line each."""
    return [
        f"{case}: {behaviour}, close {close}"
        for case, (behaviour, close) in outcomes.items()
        if not ((behaviour == "OK" or case in JUSTIFIED) and close in ("OK", "INFORMATIONAL"))
    ]


def changes(outcomes: dict[str, Outcome], committed: dict[str, Outcome]) -> list[str]:
    """Return the outcomes that differ from ``committed``, one line each."""
    return [
        f"{case}: was {' '.join(committed.get(case, ('not run',)))}, is {' '.join(outcome)}"
        for case, outcome in outcomes.items()
        if committed.get(case) != outcome
    ]


def written(outcomes: dict[str, Outcome]) -> str:
    """Return the text of the results file."""
    lines = [
        f"{case:<8} {behaviour:<13} {close}"
        for case, (behaviour, close) in sorted(outcomes.items(), key=lambda item: _key(item[0]))
    ]
    return "\n".join([f"{'case':<8} {'behaviour':<13} close", *lines, ""])


def read(text: str) -> dict[str, Outcome]:
    """Parse the output of :func:`written`."""
    rows = (line.split() for line in text.splitlines()[1:])
    return {case: (behaviour, close) for case, behaviour, close in rows}


def _key(case: str) -> list[int]:
    return [int(part) for part in case.split(".")]


async def run(
    wstest: Path, cases: Sequence[str], on_case: Callable[[int], None] = lambda done: None
) -> dict[str, Outcome]:
    """Run ``cases`` against a data plane of their own; call ``on_case`` with the number begun."""
    with tempfile.TemporaryDirectory(prefix="autobahn-") as folder:
        async with echoing() as port:
            url = f"ws://127.0.0.1:{port}/websocket"
            spec = {
                "outdir": folder,
                "options": {"failByDrop": False},
                "servers": [{"agent": AGENT, "url": url}],
                "cases": list(cases),
                "exclude-cases": [],
                "exclude-agent-cases": {},
            }
            path = Path(folder) / "spec.json"
            path.write_text(json.dumps(spec))
            await _wstest(wstest, path, on_case)
        index = json.loads((Path(folder) / "index.json").read_text())
    return {
        case: (found["behavior"], found["behaviorClose"]) for case, found in index[AGENT].items()
    }


async def _wstest(wstest: Path, spec: Path, on_case: Callable[[int], None]) -> None:
    process = await asyncio.create_subprocess_exec(
        wstest, "-m", "fuzzingclient", "-s", spec,
        cwd=spec.parent, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    assert process.stdout is not None
    lines: list[str] = []
    begun = 0
    try:
        async for line in process.stdout:
            lines = [*lines[-20:], line.decode(errors="replace")]
            if line.startswith(b"Running test case ID"):
                begun += 1
                on_case(begun)
        if await process.wait() != 0:
            raise RuntimeError("wstest failed:\n" + "".join(lines))
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def _progress(total: int) -> Callable[[int], None]:
    of = f" of {total}" if total else ""

    def show_case(done: int) -> None:
        if sys.stderr.isatty():
            sys.stderr.write(f"\rAutobahn TestSuite: case {done}{of} ")
        elif done % 50 == 0:
            sys.stderr.write(f"Autobahn TestSuite: case {done}{of}\n")
        sys.stderr.flush()

    return show_case


def main() -> int:
    """Run, compare, and report faults and changes."""
    parser = argparse.ArgumentParser(description="Run the Autobahn TestSuite on the data plane.")
    parser.add_argument("cases", nargs="*", help="such as 1.* 9.1.1; all unless given")
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name} anew")
    options = parser.parse_args()
    committed = read(RESULTS.read_text()) if RESULTS.exists() else {}
    total = 0 if options.cases else len(committed)
    outcomes = asyncio.run(run(installed("autobahn"), options.cases or ALL, _progress(total)))
    if options.write:
        committed = {**committed, **outcomes} if options.cases else outcomes
        RESULTS.write_text(written(committed))
    wrong = [*faults(outcomes), *changes(outcomes, committed)]
    if not options.cases:
        wrong += [f"{case}: not run" for case in committed if case not in outcomes]
    kinds = collections.Counter(behaviour for behaviour, _ in outcomes.values())
    text = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    sys.stdout.write(
        "".join(f"{line}\n" for line in ["", *wrong, f"{len(outcomes)} cases: {text}"])
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
