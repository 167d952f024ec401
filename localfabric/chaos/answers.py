"""Whether readers who came back were told the truth. Pure.

``recovered: true`` says that a reader gets all that it missed: at once what this gateway has given
to others, the rest as soon as the gateway has it, which may take minutes while a region is cut off.
Messages follow after that word, so a connection that is soon cut off proves nothing: the reader
comes again from where it was, and then the next answer counts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Final

# Seconds within which all has to come that was given to others before.
_DUE: Final = 30.0


@dataclasses.dataclass(slots=True, kw_only=True)
class Answer:
    """What the gateway at ``url`` said ``at`` that time to a reader who had ``asked`` for what it
    missed. ``until`` is when that connection ended.
    """

    asked: float
    at: float
    recovered: bool
    url: str = ""
    until: float = float("inf")


def told_wrongly(
    answers: Sequence[Answer],
    *,
    receipted: float,
    given: Mapping[str, float],
    arrived: float | None,
) -> bool:
    """Whether a message was promised by one of ``answers`` and didn't come by it.

    ``answers`` are all that its reader was given for its topic, in order; ``given`` says when each
    gateway first gave it to anybody; ``arrived`` is None if it never did.
    """
    for n, answer in enumerate(answers):
        if not answer.recovered or receipted >= answer.asked:
            continue
        if arrived is not None and arrived <= answer.until:
            continue
        was_there = given.get(answer.url, float("inf")) < answer.asked
        if was_there and answer.until - answer.at >= _DUE:
            return True
        if arrived is None and all(later.recovered for later in answers[n + 1 :]):
            return True
    return False
