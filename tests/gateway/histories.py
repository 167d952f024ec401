"""Looks for histories of the models that fail, in a range of seeds.

``python tests/gateway/histories.py {repair,resume} FIRST END [--steps N]`` names each seed that
fails, and ends with 1 if there is one. 10,000 histories take some minutes on one core.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "support"), str(HERE.parents[1])]

import test_repair_model  # noqa: E402
import test_resume_model  # noqa: E402


def failure(model: str, seed: int, steps: int) -> str | None:
    """Why this history fails; None if it doesn't."""
    try:
        if model == "repair":
            test_repair_model.history(seed, steps)
        else:
            test_resume_model.history(seed)
    except AssertionError as exc:
        return str(exc).partition("\n")[0] or "an assertion failed"
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", choices=["repair", "resume"])
    parser.add_argument("first", type=int)
    parser.add_argument("end", type=int)
    parser.add_argument("--steps", type=int, default=20, help="of the model of repair")
    told = parser.parse_args()
    bad = 0
    for seed in range(told.first, told.end):
        problem = failure(told.model, seed, told.steps)
        if problem is not None:
            bad += 1
            sys.stdout.write(f"{told.model} {seed}: {problem}\n")
    sys.stdout.write(f"{bad} of {told.end - told.first} histories failed\n")
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
