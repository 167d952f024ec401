"""The publishers' libraries as programs: one for each language, all with the same behaviour.

What each takes and prints is in tests/clients/driver.py.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
from collections.abc import Sequence
from typing import Any

import pytest

from bench.drivers import ROOT, command
from newsfabric.errors import SetupError


@dataclasses.dataclass(frozen=True)
class Program:
    """A driver, and how long it may take over one run."""

    command: Sequence[str]
    timeout: float = 120.0

    async def run(self, settings: dict[str, Any], *messages: dict[str, Any]) -> list[Any]:
        """What it prints for ``messages``; fails the test if it fails."""
        told, _ = await self.run_and_listen(settings, *messages)
        return told

    async def run_and_listen(
        self, settings: dict[str, Any], *messages: dict[str, Any]
    ) -> tuple[list[Any], str]:
        """The same, and what it logs."""
        process = await asyncio.create_subprocess_exec(
            *self.command,
            json.dumps(settings),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )
        lines = "".join(json.dumps(message) + "\n" for message in messages)
        try:
            async with asyncio.timeout(self.timeout):
                out, err = await process.communicate(lines.encode())
        except BaseException:
            process.kill()
            await process.wait()
            raise
        assert process.returncode == 0, err.decode()
        return [json.loads(line) for line in out.splitlines()], err.decode()


def program(language: str) -> Program:
    """The driver in ``language``; skips where its toolchain is missing, fails in CI."""
    try:
        return Program(command(language))
    except SetupError as exc:
        if os.environ.get("CI"):
            pytest.fail(f"CI must have every toolchain, `make setup` installs them: {exc}")
        pytest.skip(str(exc))
