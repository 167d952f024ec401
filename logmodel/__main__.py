"""``python -m logmodel``: plays histories, in search of one that breaks an invariant."""

from __future__ import annotations

import argparse
import collections
import dataclasses
import json
import sys
import time
from collections.abc import Sequence

from logmodel.book import InvariantBroken
from logmodel.mutations import AS_WRITTEN, MUTATIONS, parts_of
from logmodel.parts import ModelParts
from logmodel.settings import DEFAULT, Profile
from logmodel.world import history

EXAMPLES = """examples:
  python -m logmodel --seeds 0-500                              the design: no counterexample
  python -m logmodel --seeds 0-500 --partial 0.6                most writes time out
  python -m logmodel --seeds 0-500 --partial 0.8 --stray 1 --regions 3    the hardest
  python -m logmodel --seeds 0-500 --partial 0.3 --clocks       clocks go wrong by hours
  python -m logmodel --seeds 0-400 --stop --mutate no_lease     a fault: it must be found
  python -m logmodel --seeds 17-17                              one history again
  python -m logmodel --list                                     the faults

Ends with 1 if a history broke an invariant, and names its seed; with 2 if it is called wrongly.
The same seed is the same history, as long as the model is the same.
"""

# Seconds between lines of progress on stderr.
PROGRESS_EVERY = 10.0


@dataclasses.dataclass(slots=True)
class Found:
    """The results of a run."""

    histories: int = 0
    counts: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    broken: list[tuple[int, InvariantBroken]] = dataclasses.field(default_factory=list)

    def as_json(self, seconds: float) -> str:
        return json.dumps(
            {
                "histories": self.histories,
                "cpu_seconds": round(seconds, 1),
                "counts": dict(sorted(self.counts.items())),
                "broken": [
                    {"seed": seed, "invariant": bug.invariant, "what": bug.what}
                    for seed, bug in self.broken
                ],
            }
        )


def seed_range(text: str) -> range:
    """Parse ``A-B``, both included, or one seed."""
    first, _, last = text.partition("-")
    if not (first.isdecimal() and (last or first).isdecimal()):
        raise argparse.ArgumentTypeError(f"{text!r} is no range of seeds such as 0-200")
    seeds = range(int(first), int(last or first) + 1)
    if not seeds:
        raise argparse.ArgumentTypeError(f"{text!r} has no seeds")
    return seeds


def search(seeds: range, profile: Profile, parts: ModelParts, *, stop: bool) -> Found:
    """Play these histories; ``stop`` at the first that breaks an invariant."""
    found = Found()
    printed_at = time.monotonic()
    for seed in seeds:
        found.histories += 1
        try:
            book = history(seed, profile, parts)
        except InvariantBroken as bug:
            found.broken.append((seed, bug))
            _say(f"seed {seed}: {bug}")
            if stop:
                break
        else:
            found.counts.update(book.counts)
            found.counts["routed"] += len(book.routed)
        if time.monotonic() - printed_at > PROGRESS_EVERY:
            printed_at = time.monotonic()
            _say(f"{found.histories} of {len(seeds)} histories, {len(found.broken)} broken")
    return found


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m logmodel",
        description="Plays random histories of the design docs/design/0028, and checks L1 to L5.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--seeds", type=seed_range, default=range(0, 201), metavar="A-B", help="default: 0-200")
    add("--partial", type=float, default=DEFAULT.partial, help="share of writes that time out")
    add(
        "--stray",
        type=float,
        default=DEFAULT.stray,
        help="share of these whose rows lie in another region first",
    )
    add(
        "--regions",
        type=int,
        default=DEFAULT.regions,
        help="2 or 3; default: 3 in every fifth seed, else 2",
    )
    add("--clocks", action="store_true", help="clocks step by up to ten hours")
    add(
        "--mutate",
        action="append",
        default=[],
        choices=[AS_WRITTEN, *MUTATIONS],
        metavar="NAME",
        help="put a fault in (several times: several)",
    )
    add("--stop", action="store_true", help="at the first history that breaks an invariant")
    add("--list", action="store_true", help="list the faults and end")
    add("--json", action="store_true", help="the result as one line of JSON")
    return parser


def main(args: Sequence[str] | None = None) -> int:
    """Run the program; return its exit code: 1 if an invariant was broken."""
    parser = arguments()
    options = parser.parse_args(args)
    if options.list:
        _list()
        return 0
    try:
        profile = Profile(
            partial=options.partial,
            stray=options.stray,
            regions=options.regions,
            clocks=options.clocks,
        )
    except ValueError as exc:
        parser.error(str(exc))
    began = time.process_time()
    found = search(options.seeds, profile, parts_of(options.mutate), stop=options.stop)
    seconds = time.process_time() - began
    if options.json:
        sys.stdout.write(found.as_json(seconds) + "\n")
    else:
        _report(found, options.mutate, seconds)
    return 1 if found.broken else 0


def _report(found: Found, mutations: Sequence[str], seconds: float) -> None:
    what = ", ".join(mutations) or "the design"
    counts = ", ".join(f"{name} {count:,}" for name, count in sorted(found.counts.items()))
    out = sys.stdout.write
    out(f"{what}: {found.histories} histories in {seconds:.0f} s of CPU; {counts}\n")
    if found.broken:
        seed, bug = found.broken[0]
        out(f"{len(found.broken)} broke an invariant; the first is seed {seed}: {bug}\n")
    else:
        out("no counterexample\n")


def _list() -> None:
    for name, mutation in MUTATIONS.items():
        notes = ["as written"] * mutation.as_written + ["not found yet"] * (not mutation.is_found)
        sys.stdout.write(f"{name:21} {mutation.description}")
        sys.stdout.write(f" ({', '.join(notes)})\n" if notes else "\n")
    sys.stdout.write(f"{AS_WRITTEN:21} all that are marked as written, together\n")


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")


if __name__ == "__main__":
    sys.exit(main())
