"""Texts that readers of one page all say, and what they mean: read once instead of for each reader.

A page's readers come back together and say the same, ten thousand of them; the text is the key,
its ``ref`` included. But one reader can make up as many texts as it likes. So what is kept is
bounded in bytes: the text said longest ago goes first. A text is kept only if it is short, and
its answer only if it carries no messages: those are the data plane's (as a batch) or
:mod:`gateway.resume`'s, each with a bound of its own.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Callable
from typing import Final

from gateway.bounded import BoundedMap
from gateway.protocol import Intent, Subscribed
from gateway.recalled import Recalled

# A text of a page, with a position and a ref, has 100 to 200 bytes.
SHORT: Final = 256
# The objects around a text and its answer.
_OVERHEAD: Final = 2_048
# A thousand and more texts with their answers.
MOST_BYTES: Final = 4 << 20


@dataclasses.dataclass(slots=True)
class Said:
    """What ``text`` means, and the last answer, if it is a subscribe that others may say too.

    ``answer`` is the command that was sent last: it tells the reader ``told``, and names the
    ``batch`` of what is replayed; 0 if nothing is. The replay is not kept alive here.
    """

    text: bytes
    intent: Intent
    told: Subscribed | None = None
    answer: bytes = b""
    batch: int = 0
    replay: Callable[[], Recalled | None] | None = None

    def replays(self, replay: Recalled) -> bool:
        """Whether the last answer was made with ``replay`` too."""
        return self.replay is not None and self.replay() is replay

    def note(self, replay: Recalled, told: Subscribed, batch: int, answer: bytes) -> None:
        """The last answer; empty if it holds the messages themselves, and isn't kept."""
        self.replay, self.told = weakref.ref(replay), told
        self.batch, self.answer = batch, answer


class Sayings(BoundedMap[bytes, Said]):
    """What the texts mean that were said last; together about ``most_bytes`` at most."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        super().__init__(most_bytes // _OVERHEAD, most_bytes)

    def find(self, text: bytes) -> Said | None:
        """What ``text`` means, if it is known."""
        found = self.get(text)
        if found is not None:
            self.touch(text)
        return found

    def keep(self, said: Said) -> None:
        """Remember what a text means, unless it is too long."""
        if len(said.text) <= SHORT:
            self.set(said.text, said, len(said.text) + len(said.answer) + _OVERHEAD)

    def weigh(self, said: Said) -> None:
        """The answer has changed: if the text is remembered, note what it takes now."""
        if self.get(said.text) is said:
            self.keep(said)
