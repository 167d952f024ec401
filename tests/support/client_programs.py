"""The publishers' libraries as programs: one for each language, all with the same behaviour.

What each takes and prints is in tests/clients/driver.py.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
DRIVER = ROOT / "tests" / "clients" / "driver.py"
JAVA = ROOT / "clients" / "java"
PHP = ROOT / "clients" / "php"

LANGUAGES = ("python-async", "python-sync", "java", "php")


@dataclasses.dataclass(frozen=True)
class Program:
    """A driver, and how long it may take over one run."""

    command: Sequence[str]
    timeout: float = 60.0

    async def run(self, settings: dict[str, Any], *messages: dict[str, Any]) -> list[Any]:
        """What it prints for ``messages``; fails the test if it fails."""
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
        return [json.loads(line) for line in out.splitlines()]


def program(language: str) -> Program:
    """The driver in ``language``; skips where its toolchain is missing, fails in CI."""
    match language:
        case "java":
            return Program(["java", "-cp", java_classpath(), "io.newsfabric.publish.Driver"])
        case "php":
            require("php", "php-cli and php-amqplib")
            return Program(["php", str(PHP / "tests" / "driver.php")])
        case _:
            how = language.removeprefix("python-")
            return Program([sys.executable, str(DRIVER), how])


def java_classpath() -> str:
    """Compile the Java library and say where it and what it needs are."""
    require("mvn", "a JDK and maven")
    built = subprocess.run(
        [
            *("mvn", "-q", "-B", "test-compile", "dependency:build-classpath"),
            *("-Dmdep.outputFile=target/classpath", "-Dmdep.includeScope=test"),
        ],
        cwd=JAVA,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    found = (JAVA / "target" / "classpath").read_text("utf-8")
    return f"{JAVA}/target/classes:{JAVA}/target/test-classes:{found}"


def require(tool: str, packages: str) -> None:
    """Skip on a laptop without ``tool``; fail in CI."""
    if shutil.which(tool) is None:
        if os.environ.get("CI"):
            pytest.fail(f"CI must have {packages}: `make setup` installs them")
        pytest.skip(f"{tool} is missing: install {packages}")
