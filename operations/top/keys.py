"""A parser of bytes from a terminal's keyboard into keys. Pure.

A key is a character, or one of the names below. All other input (mouse, function keys, a pasted
control) is no key, and its sequence is dropped whole, so that its end isn't taken for letters.
"""

from __future__ import annotations

import codecs
import re
from typing import Final

UP: Final = "up"
DOWN: Final = "down"
LEFT: Final = "left"
RIGHT: Final = "right"
HOME: Final = "home"
END: Final = "end"
PAGE_UP: Final = "page up"
PAGE_DOWN: Final = "page down"
ENTER: Final = "enter"
ESCAPE: Final = "escape"
BACKSPACE: Final = "backspace"
TAB: Final = "tab"
BACK_TAB: Final = "back tab"
INTERRUPT: Final = "interrupt"

# ECMA-48 section 5.4: parameters, intermediates, and a final byte; or SS3 and one character.
_SEQUENCE: Final = re.compile(r"\x1b(?:\[([0-?]*)[ -/]*([@-~])|O([@-~]))")
# The beginning of a sequence.
_BEGUN: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|O)\Z")
_FINALS: Final = {
    "A": UP,
    "B": DOWN,
    "C": RIGHT,
    "D": LEFT,
    "H": HOME,
    "F": END,
    "Z": BACK_TAB,
}
_TILDES: Final = {"1": HOME, "7": HOME, "4": END, "8": END, "5": PAGE_UP, "6": PAGE_DOWN}
_CONTROLS: Final = {
    "\r": ENTER,
    "\n": ENTER,
    "\x7f": BACKSPACE,
    "\b": BACKSPACE,
    "\t": TAB,
    "\x1b": ESCAPE,
    "\x03": INTERRUPT,
}
# More than the sequence of any key: endless parameters must not be kept.
_MOST_BEGUN: Final = 32


class Keyboard:
    """Parses the bytes read, in pieces of any size, into keys."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""

    def feed(self, read: bytes) -> list[str]:
        """Return the keys that ``read`` completes.

        An escape as its last byte is the key Escape: terminals write a sequence at once.
        """
        text = self._rest + self._decoder.decode(read)
        self._rest = ""
        keys = []
        while text:
            if found := _SEQUENCE.match(text):
                key = _named(found)
                text = text[found.end() :]
            elif _BEGUN.match(text) and len(text) <= _MOST_BEGUN:
                self._rest = text
                break
            else:
                key = _CONTROLS.get(text[0], text[0] if text[0].isprintable() else None)
                text = text[1:]
            if key is not None:
                keys.append(key)
        return keys


def _named(found: re.Match[str]) -> str | None:
    parameters, final, single = found.groups()
    if single is not None:
        return _FINALS.get(single)
    return _TILDES.get(parameters) if final == "~" else _FINALS.get(final)
