"""Verbs and their answers, while the link to the data plane has room for answers.

An answer can be a megabyte, and a crowd asks at once. So verbs wait here while the link is full, in
their order, and so does whoever makes an answer later (:meth:`Room.wait`), one let on at a time.
The bound of both is one for each reader: the data plane sends nobody's next verb before this one
is answered.
"""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Callable, Iterable
from typing import TypeAlias

#: A reader's connection, the state of its login, and what it said.
Verb: TypeAlias = tuple[bytes, bytes, bytes]


class Room:
    """``is_full`` says whether the link has no room; False also while there is no link."""

    def __init__(self, is_full: Callable[[], bool]) -> None:
        self.is_full = is_full
        #: Answers a verb, exactly once. It may not block or raise.
        self.answer: Callable[[bytes, bytes, bytes], None]
        self._verbs: collections.deque[Verb] = collections.deque()
        # Who came first is at the front.
        self._waiting: collections.deque[asyncio.Future[None]] = collections.deque()

    def heard(self, verbs: Iterable[Verb]) -> None:
        """These have come: they are answered as long as there is room."""
        self._verbs.extend(verbs)
        self._answer()

    def grew(self) -> None:
        """There is room again."""
        self._let_one_on()
        self._answer()

    def forget(self) -> None:
        """The attachment has ended: its verbs come again, and nobody need wait for room."""
        self._verbs.clear()
        self._let_one_on()

    async def wait(self) -> None:
        """Return when an answer may be made, or there is no attachment to send it to."""
        while self.is_full():
            waiting = asyncio.get_running_loop().create_future()
            self._waiting.append(waiting)
            try:
                await waiting
            finally:
                # The next one, when this one has made its answer, or was cancelled.
                asyncio.get_running_loop().call_soon(self._let_one_on)

    def _answer(self) -> None:
        while self._verbs and not self.is_full():
            self.answer(*self._verbs.popleft())

    def _let_one_on(self) -> None:
        """Wake who has waited longest for room: all at once would find none for most of them."""
        while self._waiting and not self.is_full():
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(None)
                return
