"""The log of a service: bounded, whatever strangers do.

Each place in the code may say :data:`BURST` lines at once, then one in :data:`PAUSE` seconds; the
next line that it says tells how many were left out. A line is cut at :data:`MAX_LINE` characters,
and what strangers wrote can't begin a line of its own: control characters are escaped.

The decision that one would question: this is the net under everything, libraries included, not a
reason to log per request. Where a stranger is known to be able to cause a line, the place itself
says it seldom (:mod:`newsfabric.seldom`), or counts it in a metric and says nothing.
"""

from __future__ import annotations

import dataclasses
import logging
import re
from typing import Final, TextIO

FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
# More than a service that starts says at one place.
BURST: Final = 100
PAUSE: Final = 10.0
MAX_LINE: Final = 2_000
# A traceback's end says most; it has one for each cause.
MAX_TRACEBACK: Final = 8_000

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def log_to(stream: TextIO, level: str) -> logging.Handler:
    """Log at ``level`` and above to ``stream``. Once, at a process's start."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(Lines(FORMAT))
    handler.addFilter(Bounded())
    logging.getLogger().addHandler(handler)
    logging.getLogger().setLevel(level.upper())
    # What strangers' requests look like is no news: it is counted, not logged.
    logging.getLogger("tornado.general").setLevel(logging.ERROR)
    return handler


@dataclasses.dataclass(slots=True)
class _Place:
    left: float
    at: float
    unsaid: int = 0


class Bounded(logging.Filter):
    """Lets a record pass while its place in the code has some left.

    Places are as many as the code has. Time is the records' own.
    """

    def __init__(self) -> None:
        super().__init__()
        self._places: dict[tuple[str, int], _Place] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to say it; how many were left out before it is noted for its line."""
        key = (record.pathname, record.lineno)
        now = record.created
        place = self._places.get(key)
        if place is None:
            place = self._places[key] = _Place(BURST, now)
        earned = max(0.0, now - place.at) / PAUSE
        place.left, place.at = min(float(BURST), place.left + earned), now
        if place.left < 1:
            place.unsaid += 1
            return False
        place.left -= 1
        if place.unsaid:
            # For Lines. Not into the text here: what can't be put together must not raise.
            record.unsaid = place.unsaid
            place.unsaid = 0
        return True


class Lines(logging.Formatter):
    """One line for each record, and its traceback behind it."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """The line without what could begin another one, and not too long."""
        line = _CONTROL.sub(_escaped, super().formatMessage(record))
        line = line if len(line) <= MAX_LINE else f"{line[:MAX_LINE]}…"
        unsaid = getattr(record, "unsaid", 0)
        return f"{line} (and {unsaid} more lines like this one)" if unsaid else line

    def formatException(self, ei: object) -> str:
        """The end of the traceback."""
        text = super().formatException(ei)  # type: ignore[arg-type]
        return text if len(text) <= MAX_TRACEBACK else f"…{text[-MAX_TRACEBACK:]}"


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()
