"""The terminal of ``newsfabric top``: reads keys, writes rows, and restores everything at the end.

Only rows that differ from those on the screen are written, which makes it bearable over a slow
line.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import termios
import tty
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from rich.console import Console
from rich.control import Control
from rich.segment import Segment

from operations.board_document import Board, with_events_before
from operations.top.frontdesks import Frontdesks, Login
from operations.top.keys import Keyboard
from operations.top.screen import BoardState, Trail, page_of, screen
from operations.top.state import Effect, ViewState, press

# The interval (s) of redrawing without a new board, for the age of the shown one.
_EVERY: Final = 1.0
_READ: Final = 4096


class Top:
    """A run, on the terminal that ``console`` writes to and stdin reads from."""

    def __init__(
        self,
        console: Console,
        urls: Sequence[str],
        login: Login,
        state: ViewState,
        *,
        over_http: bool = False,
    ) -> None:
        self._console = console
        self._frontdesks = Frontdesks(
            urls, login, self._on_board, self._on_trouble, over_http=over_http
        )
        self._state = state
        self._keyboard = Keyboard()
        self._trail = Trail()
        # The newest board, and the shown one, which stays the same while paused.
        self._board: Board | None = None
        self._shown: Board | None = None
        self._came = 0.0
        self._trouble = ""
        self._rows: list[list[Segment]] = []
        self._quit = asyncio.Event()

    async def run(self) -> None:
        """Run until ``q``. NewsfabricError when every frontdesk refuses us from the beginning."""
        with self._terminal():
            frontdesks = asyncio.create_task(self._frontdesks.run())
            quitting = asyncio.create_task(self._quit.wait())
            try:
                while not (quitting.done() or frontdesks.done()):
                    self._draw()
                    await asyncio.wait(
                        [frontdesks, quitting],
                        timeout=_EVERY,
                        return_when=asyncio.FIRST_COMPLETED,
                    )
            finally:
                frontdesks.cancel()
                quitting.cancel()
                await asyncio.wait([frontdesks, quitting])
        if not frontdesks.cancelled():
            frontdesks.result()

    # --- input ---

    def _on_board(self, board: Board, document: dict[str, Any]) -> None:
        self._board = with_events_before(board, self._board)
        self._came = asyncio.get_running_loop().time()
        if self._frontdesks.is_first:
            self._trouble = ""
        if not self._state.paused:
            self._shown = self._board
            self._trail.note(self._state.followed, board)
        self._draw()

    def _on_trouble(self, text: str) -> None:
        if text:
            self._trouble = text
        self._draw()

    def _on_keys(self) -> None:
        try:
            read = os.read(sys.stdin.fileno(), _READ)
        except BlockingIOError:
            return
        except OSError:
            # The terminal has gone.
            read = b""
        if not read:
            self._quit.set()
            return
        for key in self._keyboard.feed(read):
            self._press(key)
        self._draw()

    def _press(self, key: str) -> None:
        width, height = self._console.size
        state = press(self._state, key, page_of(self._feed(), self._state, width, height))
        if state is Effect.QUIT:
            self._quit.set()
        elif state is Effect.NEXT_FRONTDESK:
            self._frontdesks.ask_next()
        elif isinstance(state, ViewState):
            follows_another = state.followed != self._state.followed
            self._state = state
            if not state.paused:
                self._shown = self._board
            if follows_another and self._shown is not None:
                self._trail.note(state.followed, self._shown)

    # --- output ---

    def _feed(self) -> BoardState:
        old = asyncio.get_running_loop().time() - self._came
        notice = self._trouble
        if notice and self._board is not None and old < 2 * _EVERY:
            notice = f"this is {self._board.frontdesk}, since {notice}"
        return BoardState(board=self._shown, old_ms=old * 1000, notice=notice)

    def _draw(self) -> None:
        width, height = self._console.size
        rows = [
            list(row.render(self._console))
            for row in screen(self._feed(), self._state, self._trail, width, height)
        ]
        if len(rows) != len(self._rows):
            self._rows = []
        with self._console:
            for n, row in enumerate(rows):
                if n >= len(self._rows) or row != self._rows[n]:
                    self._console.update_screen_lines([row], y=n)
        self._rows = rows

    def _draw_anew(self) -> None:
        self._rows = []
        self._console.control(Control.clear())
        self._draw()

    # --- the terminal itself ---

    @contextlib.contextmanager
    def _terminal(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        keyboard = sys.stdin.fileno()
        before = termios.tcgetattr(keyboard)

        def enter() -> None:
            tty.setcbreak(keyboard)
            self._console.set_alt_screen(True)
            self._console.show_cursor(False)

        def leave() -> None:
            self._console.show_cursor(True)
            self._console.set_alt_screen(False)
            termios.tcsetattr(keyboard, termios.TCSADRAIN, before)

        def sleep() -> None:
            # Ctrl-Z: the shell gets its terminal back in its old state.
            leave()
            os.kill(os.getpid(), signal.SIGSTOP)
            enter()
            self._draw_anew()

        signals: dict[int, Callable[[], None]] = {
            signal.SIGWINCH: self._draw_anew,
            signal.SIGTSTP: sleep,
            signal.SIGINT: self._quit.set,
            signal.SIGTERM: self._quit.set,
            signal.SIGHUP: self._quit.set,
        }
        for number, handler in signals.items():
            loop.add_signal_handler(number, handler)
        loop.add_reader(keyboard, self._on_keys)
        enter()
        try:
            yield
        finally:
            loop.remove_reader(keyboard)
            for number in signals:
                loop.remove_signal_handler(number)
            with contextlib.suppress(OSError, termios.error):
                leave()
