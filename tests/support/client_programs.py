"""The publishers' libraries as programs: one for each language, all with the same behaviour.

tests/clients/driver.py describes their input and output.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import subprocess
from collections.abc import Sequence
from typing import Any, Final

import pytest

from bench.drivers import LANGUAGES, ROOT, command
from newsfabric.errors import SetupError

#: Python's synchronous publisher contains the asynchronous one.
CONTRACT: Final = tuple(language for language in LANGUAGES if language != "python-async")

# For a program that ends after a second: the quick compiler alone, and no threads beside it.
_JAVA: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


@dataclasses.dataclass(frozen=True)
class Program:
    """A driver, and its timeout in seconds for one run."""

    command: Sequence[str]
    timeout: float = 120.0

    async def run(self, settings: dict[str, Any], *messages: dict[str, Any]) -> list[Any]:
        """Run it with ``messages``; return the lines it prints, decoded. Fail if it fails."""
        result, _ = await self.run_and_listen(settings, *messages)
        return result

    async def run_and_listen(
        self, settings: dict[str, Any], *messages: dict[str, Any]
    ) -> tuple[list[Any], str]:
        """Return the same, and the program's log."""
        lines = "".join(json.dumps(message) + "\n" for message in messages)
        # A program may end before it reads its input: `asyncio` raises if the pipe is closed
        # before the first line is written; `subprocess` doesn't.
        ended = await asyncio.to_thread(
            subprocess.run,
            [*self.command, json.dumps(settings)],
            input=lines,
            capture_output=True,
            text=True,
            timeout=self.timeout,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )
        assert ended.returncode == 0, ended.stderr
        return [json.loads(line) for line in ended.stdout.splitlines()], ended.stderr


def program(language: str) -> Program:
    """Return the driver in ``language``; without its toolchain, skip on a laptop and fail in CI."""
    try:
        words = command(language)
        return Program([words[0], *_JAVA, *words[1:]] if language == "java" else words)
    except SetupError as exc:
        if os.environ.get("CI"):
            pytest.fail(f"CI must have every toolchain, `make setup` installs them: {exc}")
        pytest.skip(str(exc))
