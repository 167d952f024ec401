"""A check whether readers that reconnected got true answers. Pure.

``recovered: true`` promises a reader all messages that it missed: at once those that this gateway
has given to others, the rest as soon as the gateway has them, which may take minutes while a region
is cut off. The messages follow after that answer, so a connection that soon breaks proves nothing:
the reader resumes again from its position, and then the next answer counts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Final

# Seconds within which all messages must arrive that were given to others before.
_DUE: Final = 30.0


@dataclasses.dataclass(slots=True, kw_only=True)
class ResumeAnswer:
    """The answer ``at`` that time of the gateway at ``url`` to a reader that had resumed at
    ``asked``. ``until`` is the end of that connection.
    """

    asked: float
    at: float
    recovered: bool
    url: str = ""
    until: float = float("inf")


def promised_wrongly(
    answers: Sequence[ResumeAnswer],
    *,
    receipted: float,
    given: Mapping[str, float],
    arrived: float | None,
) -> bool:
    """Return whether one of ``answers`` promised a message that didn't arrive by it.

    ``answers`` are all those to one reader for one topic, in order. ``given`` has the time when
    each gateway first gave the message to any reader; ``arrived`` is None if it never did.
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
