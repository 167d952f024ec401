"""A program on a pseudo-terminal, and the screen that it has drawn there.

The screen knows only the escape sequences that `newsfabric top` needs: any other that reaches
the terminal fails the test.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import fcntl
import os
import re
import struct
import termios
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

# Seconds. Nothing is measured here; only a broken program takes that long.
PATIENCE = 60.0

_SEQUENCE = re.compile(r"\x1b\[(\??)([0-9;]*)([A-Za-z])")
_BEGUN = re.compile(r"\x1b(?:\[[?0-9;]*)?\Z")


class DrawnScreen:
    """The content of a terminal of ``width`` by ``height`` after the bytes it was fed."""

    def __init__(self, width: int, height: int) -> None:
        self.resize(width, height)
        self.alternate = False
        self.cursor_shown = True
        self.coloured = False
        # Text printed while the ordinary screen was shown.
        self.printed = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._rest = ""

    def resize(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self._cells = [[" "] * width for _ in range(height)]
        self._x = self._y = 0

    def feed(self, data: bytes) -> None:
        text = self._rest + self._decoder.decode(data)
        self._rest = ""
        while text:
            if text[0] != "\x1b":
                self._put(text[0])
                text = text[1:]
            elif found := _SEQUENCE.match(text):
                self._obey(*found.groups())
                text = text[found.end() :]
            elif _BEGUN.match(text):
                self._rest = text
                return
            else:
                raise AssertionError(f"what is {text[:20]!r}?")

    def rows(self) -> list[str]:
        return ["".join(row).rstrip() for row in self._cells]

    def text(self) -> str:
        return "\n".join(self.rows())

    def _put(self, letter: str) -> None:
        if not self.alternate:
            self.printed += letter
            return
        assert letter.isprintable(), f"{letter!r} reached the terminal"
        if self._x < self.width and self._y < self.height:
            self._cells[self._y][self._x] = letter
        self._x += 1

    def _obey(self, private: str, parameters: str, final: str) -> None:
        if final == "m" and not private:
            numbers = {int(number or 0) for number in parameters.split(";")}
            self.coloured |= any(30 <= number <= 49 or number >= 90 for number in numbers)
        elif final == "H" and not private:
            y, _, x = parameters.partition(";")
            self._y, self._x = int(y or 1) - 1, int(x or 1) - 1
        elif final == "J" and parameters == "2":
            self._cells = [[" "] * self.width for _ in range(self.height)]
        elif private and parameters in ("1049", "25") and final in "hl":
            if parameters == "25":
                self.cursor_shown = final == "h"
            else:
                self.alternate = final == "h"
        else:
            raise AssertionError(f"what is {private}{parameters}{final}?")


class Terminal:
    """A terminal with a program that runs on it."""

    def __init__(self, main: int, process: asyncio.subprocess.Process, screen: DrawnScreen) -> None:
        self.process = process
        self.screen = screen
        self._main = main
        self._came = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(main, self._read)

    def _read(self) -> None:
        try:
            data = os.read(self._main, 65536)
        except OSError:
            # Linux raises this error when the program has closed its end.
            data = b""
        if not data:
            self._loop.remove_reader(self._main)
        self.screen.feed(data)
        self._came.set()

    def type(self, keys: str) -> None:
        os.write(self._main, keys.encode())

    def resize(self, width: int, height: int) -> None:
        self.screen.resize(width, height)
        _set_size(self._main, width, height)

    async def shows(self, *wanted: str, without: Sequence[str] = ()) -> None:
        """Wait until the screen shows all of ``wanted`` and nothing of ``without``."""
        await self.until(
            lambda text: (
                all(one in text for one in wanted) and not any(one in text for one in without)
            )
        )

    async def until(self, holds: Callable[[str], bool]) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                while not holds(self.screen.text()):
                    self._came.clear()
                    await self._came.wait()
        except TimeoutError:
            raise AssertionError(
                f"the screen stayed\n{self.screen.text()}\n{self.screen.printed}"
            ) from None

    async def ends(self) -> int:
        async with asyncio.timeout(PATIENCE):
            code = await self.process.wait()
            while not self.screen.cursor_shown or self.screen.alternate:
                self._came.clear()
                await self._came.wait()
            return code

    def has_echo(self) -> bool:
        """Return whether the terminal echoes, as a shell needs it."""
        return bool(termios.tcgetattr(self._main)[3] & termios.ECHO)

    async def close(self) -> None:
        self._loop.remove_reader(self._main)
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()
        os.close(self._main)


@contextlib.asynccontextmanager
async def on_a_terminal(
    *command: str, width: int = 80, height: int = 24, environ: Mapping[str, str] | None = None
) -> AsyncIterator[Terminal]:
    """Run ``command`` on a terminal of that size; kill it at the end."""
    main, other = os.openpty()
    _set_size(main, width, height)
    kept = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLUMNS", "LINES")}
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=other,
            stdout=other,
            stderr=other,
            env={**kept, "TERM": "xterm-256color", **(environ or {})},
            preexec_fn=lambda: _take(other),
        )
    finally:
        os.close(other)
    terminal = Terminal(main, process, DrawnScreen(width, height))
    try:
        yield terminal
    finally:
        await terminal.close()


def _take(terminal: int) -> None:
    # In the child: signals of keys and of the terminal's size are sent to it. uvloop would begin
    # the session only after this.
    os.setsid()
    fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)


def _set_size(terminal: int, width: int, height: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
