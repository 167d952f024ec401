"""The highest costs of a process, from its folded stacks. Pure.

A folded stack is a line ``outermost;…;innermost COUNT``, as inferno and py-spy write them. A sample
counts for the function that ran, not for its callers. Time in the kernel counts for the function
that made the system call: a ``send`` is one cost, not the hundred functions that it consists of.
Likewise, time in C counts for the Python function that called it, if there is one.
"""

from __future__ import annotations

import collections
import dataclasses
import re
from typing import Final

HIGHEST: Final = 3
#: The suffix that inferno adds to the kernel's functions.
_KERNEL: Final = "_[k]"
# py-spy: `route (wholesale/router.py)`.
_PYTHON: Final = ".py)"
_SYSTEM_CALL: Final = re.compile(r"_sys_(\w+)_\[k\]$")
# Functions in which a thread waits.
_WAITS: Final = ("epoll_", "pthread_cond_", "clock_nanosleep", "futex", "sem_")


@dataclasses.dataclass(frozen=True, slots=True)
class Cost:
    """A function, and its share of all samples, 0 to 1."""

    what: str
    share: float


@dataclasses.dataclass(frozen=True, slots=True)
class Costs:
    """The number of samples of a process, and the functions most of them were in, highest first."""

    samples: int
    highest: tuple[Cost, ...]
    #: True if a sample ran in the kernel; a profiler may not be allowed to look there.
    kernel_seen: bool


def costs_of(folded: str) -> Costs:
    """Return the costs in ``folded`` stacks; lines that are no stacks are skipped."""
    counts: collections.Counter[str] = collections.Counter()
    for line in folded.splitlines():
        stack, _, count = line.rpartition(" ")
        if stack and count.isdecimal():
            counts[_cost_of(stack.split(";"))] += int(count)
    samples = counts.total()
    highest = tuple(Cost(what, count / samples) for what, count in counts.most_common(HIGHEST))
    return Costs(samples, highest, _KERNEL in folded)


def without_waits(folded: str) -> str:
    """Return the stacks that don't wait: py-spy also samples threads that are about to continue."""
    lines = folded.splitlines(keepends=True)
    return "".join(line for line in lines if not line.rpartition(";")[2].startswith(_WAITS))


def _cost_of(stack: list[str]) -> str:
    """Return the function that a sample with this stack counts for."""
    inwards = [frame for frame in stack if not frame.endswith(_KERNEL)]
    python = [frame for frame in inwards if frame.endswith(_PYTHON)]
    asked = (python or inwards or ["the kernel"])[-1]
    if asked == "syscall":
        # libc's function for system calls without a function of their own.
        found = (_SYSTEM_CALL.search(frame) for frame in stack)
        asked = next((f"system call {call[1]}" for call in found if call is not None), asked)
    return asked
