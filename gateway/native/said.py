"""Texts that readers of one page all say, and what they mean: read once instead of for each reader.

A page's readers come back together and say the same, ten thousand of them; the text is the key,
its ``ref`` included. But one reader can make up as many texts as it likes. So what is kept is
bounded in bytes: the text said longest ago goes first. A text is kept only if it is short, and
its answer only if it carries no messages: those are the data plane's (as a batch) or
:mod:`gateway.resume`'s, each with a bound of its own.
"""

from __future__ import annotations

import collections
import dataclasses
import weakref
from collections.abc import Callable
from typing import Final

from gateway.protocol import Gap, Intent
from gateway.resume import Recalled

# A text of a page, with a position and a ref, has 100 to 200 bytes.
SHORT: Final = 256
# The objects around a text and its answer.
_OVERHEAD: Final = 2_048
# A thousand and more texts with their answers.
MOST_BYTES: Final = 4 << 20


@dataclasses.dataclass(slots=True)
class Said:
    """What ``text`` means, and the last answer if it is a subscribe, as of ``position``.

    ``plain``: a subscribe that nobody is refused, and which asks for nothing that was before.
    The answer to one with a position depends on what was ``missed`` too, and names the ``batch`` in
    which the data plane has that; 0: it has it in none. What was missed is not kept alive here.
    """

    text: bytes
    intent: Intent
    plain: bool = False
    position: str = ""
    answer: bytes = b""
    missed: Callable[[], Recalled | None] | None = None
    gap: Gap | None = None
    batch: int = 0

    def misses(self, missed: Recalled) -> bool:
        """Whether the last answer was made of ``missed`` too."""
        return self.missed is not None and self.missed() is missed

    def note_missed(self, missed: Recalled) -> None:
        """The answer is being made of ``missed``."""
        self.missed = weakref.ref(missed)


class Sayings:
    """What the texts mean that were said last; together about ``most_bytes`` at most."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self.kept_bytes = 0
        self._most_bytes = most_bytes
        # By text, the one said longest ago first, with what it counts for.
        self._said: collections.OrderedDict[bytes, tuple[Said, int]] = collections.OrderedDict()

    def __len__(self) -> int:
        return len(self._said)

    def find(self, text: bytes) -> Said | None:
        """What ``text`` means, if it is known."""
        found = self._said.get(text)
        if found is None:
            return None
        self._said.move_to_end(text)
        return found[0]

    def keep(self, said: Said) -> None:
        """Remember what a text means, unless it is too long."""
        if len(said.text) > SHORT:
            return
        self._forget(said.text)
        weight = len(said.text) + len(said.answer) + _OVERHEAD
        self._said[said.text] = said, weight
        self.kept_bytes += weight
        while self.kept_bytes > self._most_bytes:
            self._forget(next(iter(self._said)))

    def weigh(self, said: Said) -> None:
        """The answer has changed: if the text is remembered, note what it takes now."""
        kept = self._said.get(said.text)
        if kept is not None and kept[0] is said:
            self.keep(said)

    def clear(self) -> None:
        """Forget all."""
        self._said.clear()
        self.kept_bytes = 0

    def _forget(self, text: bytes) -> None:
        _, weight = self._said.pop(text, (None, 0))
        self.kept_bytes -= weight
