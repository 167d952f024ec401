"""Driver ``command``: any program. docs/scaling.md describes its arguments.

``PROGRAM boxes`` prints a line of JSON for each box, ``{"name": …, "age_seconds": …, "zone": …}``;
``PROGRAM want N`` makes the total N; ``PROGRAM end NAME…`` ends these boxes. Exit code 0 is
success, 3 is "no more boxes allowed", any other a failure, reported with the last line on stderr. A
program that takes too long is killed, with all processes that it started.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterable, Sequence
from typing import Any, Final

import orjson

from newsfabric.numbers import is_number
from wholesale.scaler.drivers import MOST_BOXES, DriverError, DriverLimit, Instance, checked

EXIT_LIMIT: Final = 3
SECONDS: Final = 25.0
# A thousand lines of a name, an age and a zone.
MAX_OUTPUT: Final = 256 * 1024
# Seconds for reading the rest of a killed program's pipes.
_LAST_WORDS: Final = 5.0
# Names in one call: the length of a command line is bounded.
_NAMES_AT_ONCE: Final = 100


class CommandDriver:
    """Runs ``words``, a program and its first arguments, followed by the action."""

    def __init__(self, words: Sequence[str], *, seconds: float = SECONDS) -> None:
        self._words = tuple(words)
        self._seconds = seconds

    async def boxes(self) -> tuple[Instance, ...]:
        """Return the boxes; DriverError for a bad line: a list with gaps would be believed."""
        lines = (await self._run("boxes")).splitlines()
        if len(lines) > MOST_BOXES:
            raise DriverError(f"boxes: more than {MOST_BOXES} lines")
        return tuple(_instance(line) for line in lines if line.strip())

    async def want(self, count: int) -> None:
        """Order as :meth:`wholesale.scaler.drivers.Driver.want`; DriverLimit for exit code 3."""
        await self._run("want", str(count))

    async def end(self, names: Iterable[str]) -> None:
        """End boxes as :meth:`wholesale.scaler.drivers.Driver.end`, a hundred names at a time."""
        listed = list(names)
        for n in range(0, len(listed), _NAMES_AT_ONCE):
            await self._run("end", *listed[n : n + _NAMES_AT_ONCE])

    async def close(self) -> None:
        """Close as :meth:`wholesale.scaler.drivers.Driver.close`: it has no resources."""

    async def _run(self, *words: str) -> bytes:
        try:
            process = await asyncio.create_subprocess_exec(
                *self._words,
                *words,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=_environment(),
                start_new_session=True,
            )
        except OSError as exc:
            raise DriverError(f"{words[0]}: {self._words[0]}: {exc.strerror or exc}") from exc
        try:
            async with asyncio.timeout(self._seconds):
                out, err = await asyncio.gather(*(_all(process, pipe) for pipe in _pipes(process)))
                code = await process.wait()
        except TimeoutError as exc:
            raise DriverError(f"{words[0]}: not done within {self._seconds:g} s") from exc
        finally:
            await _end(process)
        if max(len(out), len(err)) > MAX_OUTPUT:
            raise DriverError(f"{words[0]}: more than {MAX_OUTPUT >> 10} KiB of output")
        if code != 0:
            error = _last_line(err) or "no output"
            text = f"{words[0]}: exit code {code}: {error}"
            raise DriverLimit(text) if code == EXIT_LIMIT else DriverError(text)
        return out


def _environment() -> dict[str, str]:
    """Return this process's environment without its login at the brokers."""
    return {
        name: value for name, value in os.environ.items() if not name.startswith("NEWSFABRIC_AMQP")
    }


def _pipes(process: asyncio.subprocess.Process) -> tuple[asyncio.StreamReader, ...]:
    assert process.stdout is not None
    assert process.stderr is not None
    return process.stdout, process.stderr


async def _all(process: asyncio.subprocess.Process, pipe: asyncio.StreamReader) -> bytes:
    """Return the output through ``pipe``; if it is too long, slightly more than the limit."""
    found = bytearray()
    while chunk := await pipe.read(65_536):
        if len(found) <= MAX_OUTPUT:
            found += chunk
        else:
            _kill(process)
    return bytes(found)


def _kill(process: asyncio.subprocess.Process) -> None:
    # Its child processes may outlive it, and hold its pipes.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill the process, and read on: a pipe is closed only after its end was read."""
    _kill(process)
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WORDS):
                for pipe in _pipes(process):
                    while await pipe.read(65_536):
                        pass
                await process.wait()
    finally:
        # Children in a session of their own may still hold the pipes; there is no public way.
        process._transport.close()  # type: ignore[attr-defined]


def _instance(line: bytes) -> Instance:
    try:
        fields: Any = orjson.loads(line)
    except orjson.JSONDecodeError as exc:
        raise DriverError(f"boxes: no JSON: {line[:80]!r}") from exc
    if not isinstance(fields, dict):
        raise DriverError(f"boxes: no object: {line[:80]!r}")
    name, age, zone = fields.get("name"), fields.get("age_seconds"), fields.get("zone", "")
    if not isinstance(name, str) or not is_number(age, 0, 1e9) or not isinstance(zone, str):
        raise DriverError(f"boxes: name, age_seconds and zone, please: {line[:80]!r}")
    return checked(name, age, zone)


def _last_line(text: bytes) -> str:
    lines = text.decode("utf-8", "replace").strip().splitlines()
    return lines[-1][:200] if lines else ""
