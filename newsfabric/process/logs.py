"""The log of a service: bounded, whatever strangers do, as text or as JSON lines.

Each place in the code may log :data:`BURST` lines at once, then one in :data:`PAUSE` seconds; its
next line has the number of lines left out. A line is cut at :data:`MAX_LINE` characters, and
strangers' text can't begin a new line: control characters are escaped. In text a traceback's lines
are indented, so that none of them looks like a record; in JSON it is a field.

The subject of a record is in fields of JSON beside its text (``extra=`` of a logging call), only
those in :data:`FIELDS`. Bodies and tokens are in neither.

The decision that a reader may question: this limit is a safety net for all code, libraries
included, not a reason to log per request. Where a stranger is known to be able to cause a line, the
place limits it (:mod:`newsfabric.line_limits`), or counts it in a metric without a log line.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import re
import time
from typing import Final, Literal, TextIO, get_args

from newsfabric.safe_output import OBEYED, terminal_safe

LogFormat = Literal["text", "json"]
LOG_FORMATS: Final[tuple[LogFormat, ...]] = get_args(LogFormat)
FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
#: Possible subjects of a record: a message by the id that a router gave it, by its identity, by the
#: publisher's own id; a reader's connection.
FIELDS: Final = ("id", "identity", "message_id", "connection")
# More than a starting service logs at one place.
BURST: Final = 100
PAUSE: Final = 10.0
MAX_LINE: Final = 2_000
MAX_FIELD: Final = 255
# The end of a traceback is the most useful part; it has one for each cause.
MAX_TRACEBACK: Final = 8_000

_CONTROL: Final = re.compile(rf"[\n\t{OBEYED}]")


def log_to(
    stream: TextIO, level: str, form: LogFormat = "text", *, process: str = "", region: str = ""
) -> logging.Handler:
    """Log at ``level`` and above to ``stream``. Once, at a process's start.

    ``process`` and ``region`` are on each line of JSON; for text they are in the file's name.
    """
    handler = logging.StreamHandler(stream)
    lines = JsonLines(process, region) if form == "json" else LineFormatter(FORMAT)
    handler.setFormatter(lines)
    handler.addFilter(Bounded())
    logging.getLogger().addHandler(handler)
    logging.getLogger().setLevel(level.upper())
    # Malformed requests of strangers are counted, not logged.
    logging.getLogger("tornado.general").setLevel(logging.ERROR)
    return handler


def handed_down(form: LogFormat, *, process: str, region: str) -> dict[str, str]:
    """Return the environment that makes programs we start (a gateway's data plane) log as we do."""
    return {
        "NEWSFABRIC_LOG_FORMAT": form,
        "NEWSFABRIC_LOG_PROCESS": process,
        "NEWSFABRIC_LOG_REGION": region,
    }


@dataclasses.dataclass(slots=True)
class _CodePlace:
    left: float
    at: float
    suppressed: int = 0


class Bounded(logging.Filter):
    """A filter that lets a record pass while its place in the code has lines left.

    There are as many places as the code has. Time is the records' own.
    """

    def __init__(self) -> None:
        super().__init__()
        self._places: dict[tuple[str, int], _CodePlace] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to log ``record``; note on it how many lines were left out before."""
        key = (record.pathname, record.lineno)
        now = record.created
        place = self._places.get(key)
        if place is None:
            place = self._places[key] = _CodePlace(BURST, now)
        earned = max(0.0, now - place.at) / PAUSE
        place.left, place.at = min(float(BURST), place.left + earned), now
        if place.left < 1:
            place.suppressed += 1
            return False
        place.left -= 1
        if place.suppressed:
            # For the line. The text stays: a text that can't be formatted must not raise here.
            record.suppressed = place.suppressed
            place.suppressed = 0
        return True


class LineFormatter(logging.Formatter):
    """A formatter: one line for each record, followed by its traceback, indented."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return the line, with line breaks escaped, and cut."""
        line = _bounded(super().formatMessage(record))
        suppressed = getattr(record, "suppressed", 0)
        return f"{line} (and {suppressed} more lines like this one)" if suppressed else line

    def formatException(self, ei: object) -> str:
        """Return the end of the traceback."""
        return _indented(super().formatException(ei))  # type: ignore[arg-type]

    def formatStack(self, stack_info: str) -> str:
        """Return the end of the stack."""
        return _indented(super().formatStack(stack_info))


class JsonLines(logging.Formatter):
    """A formatter: one object for each record, on a line of its own.

    ``time`` (RFC 3339, UTC), ``level``, ``logger``, ``message``; ``process`` and ``region`` if
    known; the record's subject; ``suppressed`` (lines left out before this one); ``traceback``.
    """

    def __init__(self, process: str = "", region: str = "") -> None:
        super().__init__()
        named = (("process", process), ("region", region))
        self._who = {name: value for name, value in named if value}

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without its line break."""
        fields: dict[str, object] = {
            "time": _rfc3339(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _cut(record.getMessage(), MAX_LINE),
            **self._who,
            **dict(_about(record)),
        }
        if suppressed := getattr(record, "suppressed", 0):
            fields["suppressed"] = suppressed
        # Not from record.exc_text, which another handler may have formatted.
        traces = [super().formatException(record.exc_info)] if record.exc_info else []
        traces += [record.stack_info] if record.stack_info else []
        if traces:
            fields["traceback"] = _end("\n".join(traces))
        # JSON text may contain characters that a terminal or a line reader obeys.
        return terminal_safe(json.dumps(fields, ensure_ascii=False))


def _about(record: logging.LogRecord) -> list[tuple[str, str]]:
    found = ((name, getattr(record, name, None)) for name in FIELDS)
    return [(name, _short(value)) for name, value in found if value is not None]


def _short(value: object) -> str:
    text = _CONTROL.sub(_escaped, str(value))
    return _cut(text, MAX_FIELD)


def _rfc3339(seconds: float) -> str:
    whole, ms = divmod(int(seconds * 1000), 1000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(whole))}.{ms:03d}Z"


def _bounded(text: str) -> str:
    return _cut(_CONTROL.sub(_escaped, text), MAX_LINE)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


def _end(text: str) -> str:
    return text if len(text) <= MAX_TRACEBACK else f"…{text[-MAX_TRACEBACK:]}"


def _indented(text: str) -> str:
    lines = _end(text).split("\n")
    return "\n".join(f"    {_CONTROL.sub(_escaped, line)}" for line in lines)


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()
