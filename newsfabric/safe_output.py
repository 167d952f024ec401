"""Output of commands, made safe for a terminal.

Text from outside (a publisher's ``message_id``, a broker's reason) may hold characters that a
terminal obeys: they move its cursor, set its title, or reverse the direction of a line. Each is
written as its JSON escape, so JSON stays the same JSON.

Example: U+009B, which begins a command of a terminal, is printed as ``\\u009b``. Characters that
the encoding of stdout doesn't have are written in the same way (:func:`escape_what_has_no_place`).
"""

from __future__ import annotations

import codecs
import io
import json
import os
import re
import sys
from typing import IO, Any, Final

import click

#: A character class without brackets: controls but line feed and tab; marks that change the
#: direction of text (Unicode's UAX 9, section 2); line separators; surrogates (no UTF-8).
OBEYED: Final = (
    r"\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
)
_OBEYED: Final = re.compile(f"[{OBEYED}]")


def terminal_safe(text: str) -> str:
    """Return ``text`` with each character that a terminal obeys escaped; lines and tabs stay."""
    return _OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def echo(text: str, *, err: bool = False, file: IO[Any] | None = None) -> None:
    """Print ``text`` as a line of its own: to ``file``, stdout, or stderr (``err``)."""
    # click's own stdout is UTF-8 where ours is ASCII.
    click.echo(terminal_safe(text), file=file or (sys.stderr if err else sys.stdout))


def confirm(text: str, *, err: bool = False) -> None:
    """Ask for a yes on the terminal, on stderr with ``err``; click.Abort after a no."""
    click.confirm(terminal_safe(text), abort=True, err=err)


def escape_what_has_no_place() -> None:
    """Make stdout and stderr write characters they can't encode as JSON escapes, not fail."""
    codecs.register_error(_ESCAPED, _escaped)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_ESCAPED)


def let_go_of_output() -> None:
    """Discard output that can't be written, or Python reports it once more at its end."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


_ESCAPED: Final = "newsfabric.escaped"


def _escaped(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end
