"""The example of a control plane, beside a real data plane: a base for somebody's own."""

from __future__ import annotations

import ast
import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import websockets
from gateways import Reader

from gateway.native.program import find_program
from newsfabric.errors import SetupError

EXAMPLE = Path(__file__).parents[2] / "examples/dataplane_driver.py"
try:
    PROGRAM = find_program()
except SetupError as exc:
    pytest.skip(str(exc), allow_module_level=True)


@pytest.fixture
async def port(tmp_path: Path) -> AsyncIterator[int]:
    """Yield the readers' port of a data plane that the example drives."""
    control = tmp_path / "control"
    plane = await asyncio.create_subprocess_exec(
        PROGRAM, "--control", control, "--port", "0", stderr=asyncio.subprocess.PIPE
    )
    assert plane.stderr is not None
    line = (await asyncio.wait_for(plane.stderr.readline(), 60)).decode()
    driver = await asyncio.create_subprocess_exec(sys.executable, EXAMPLE, control)
    yield int(line.removeprefix("readers on port ").partition(":")[0])
    plane.terminate()
    _, output = await asyncio.wait_for(plane.communicate(), 60)
    # The example ends when the data plane closes the connection.
    assert (plane.returncode, await asyncio.wait_for(driver.wait(), 60)) == (0, 0), output.decode()


async def test_who_subscribes_gets_a_message_each_second(port: int) -> None:
    async with websockets.connect(f"ws://127.0.0.1:{port}/websocket") as connection:
        reader = Reader(connection)
        refused = await reader.answer_to(action="history", topic="news.example")
        assert (refused["type"], refused["code"]) == ("error", 107)
        await reader.subscribe("news.example")
        first, second = await reader.hear(), await reader.hear()
        assert first["body"]["headline"].startswith("It is ")
        assert first["id"] < second["id"]


async def test_who_logs_in_is_known_by_name_from_then_on(port: int) -> None:
    async with websockets.connect(f"ws://127.0.0.1:{port}/websocket") as connection:
        reader = Reader(connection)
        assert await reader.answer_to(action="ping") == {"type": "pong", "user": None}
        push = await reader.answer_to(action="login", token="zoë")
        assert push == {"type": "logged_in", "user": "zoë"}
        assert await reader.answer_to(action="ping") == {"type": "pong", "user": "zoë"}


def test_it_needs_nothing_but_the_protocol_and_a_few_lines() -> None:
    source = EXAMPLE.read_text()
    assert len(source.splitlines()) <= 125
    imported = {
        name.partition(".")[0]
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (
            [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else [alias.name for alias in node.names]
        )
    }
    assert imported <= sys.stdlib_module_names
