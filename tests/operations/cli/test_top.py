"""`newsfabric top` on a pseudo-terminal, and frontdesks that serve only a board."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from board_documents import board, box, region
from board_frontdesk import BoardFrontdesk, opened_frontdesk
from click.testing import CliRunner
from pseudo_terminal import Terminal, on_a_terminal

from operations.cli import cli

TOP = (sys.executable, "-m", "operations.cli", "top")
HOSTILE = "\x1b[2J\x1b]0;owned\x07\u202eevil\x9b31m"


def oregon(*boxes: dict[str, Any], **changed: Any) -> dict[str, Any]:
    return board(region("oregon", boxes=list(boxes)), **changed)


def dublin(**changed: Any) -> dict[str, Any]:
    return oregon(box("dublin-retail-1"), frontdesk="dublin-frontdesk-1", **changed)


def open_frontdesk(
    document: dict[str, Any], token: str = ""
) -> AbstractAsyncContextManager[BoardFrontdesk]:
    return opened_frontdesk(document=document, token=token, every=0.2)


@asynccontextmanager
async def top(
    *arguments: str,
    width: int = 80,
    height: int = 24,
    environ: Mapping[str, str] | None = None,
) -> AsyncIterator[Terminal]:
    command = (*TOP, *arguments)
    async with on_a_terminal(*command, width=width, height=height, environ=environ) as terminal:
        yield terminal


async def printed(
    *arguments: str, environ: Mapping[str, str] | None = None
) -> tuple[int, str, str]:
    """Run `top` without a terminal; return exit code, stdout and stderr."""
    process = await asyncio.create_subprocess_exec(
        *TOP,
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def test_the_board_is_shown_and_follows_what_happens() -> None:
    async with (
        open_frontdesk(oregon(box("oregon-retail-1", readers=7))) as frontdesk,
        top("--frontdesk", frontdesk.url) as terminal,
    ):
        await terminal.shows("oregon-frontdesk-1 in oregon", "oregon-retail-1", "quit")
        await frontdesk.show(oregon(box("oregon-retail-1", state="gone", age_ms=3000, readers=7)))
        await terminal.shows("gone", "3.0s", without=["ready"])
        terminal.type("q")
        assert await terminal.ends() == 0
        assert terminal.has_echo()
        assert terminal.screen.printed.strip() == ""


async def test_keys_sort_filter_follow_and_help() -> None:
    boxes = [box(f"oregon-retail-{n}", readers=n, engine=f"engine{n}") for n in range(1, 4)]
    async with (
        open_frontdesk(oregon(*boxes)) as frontdesk,
        top("--frontdesk", frontdesk.url) as terminal,
    ):
        await terminal.shows("READERS▼")

        def order(text: str) -> list[str]:
            return [line[:15] for line in text.splitlines() if line.startswith("oregon-retail-")]

        await terminal.until(lambda text: order(text)[:1] == ["oregon-retail-3"])
        terminal.type("n")
        await terminal.until(lambda text: order(text)[:1] == ["oregon-retail-1"])
        terminal.type("/retail-2\r")
        await terminal.until(lambda text: order(text) == ["oregon-retail-2"])
        terminal.type("\r")
        await terminal.shows("box oregon-retail-2", "engine engine2")
        terminal.type("\x1b")
        await terminal.shows("BOX▲")
        terminal.type("?")
        await terminal.shows("Keys; any one leaves this page")
        terminal.type("x3")
        await terminal.shows("SHOVEL", "nothing with 'retail-2'")


async def test_when_its_frontdesk_dies_it_goes_on_with_anothers_and_says_so() -> None:
    async with (
        open_frontdesk(oregon(box("oregon-retail-1"))) as first,
        open_frontdesk(dublin()) as second,
        top("--frontdesk", first.url, "--frontdesk", second.url) as terminal,
    ):
        await terminal.shows("oregon-frontdesk-1")
        await first.close()
        await terminal.shows("! this is dublin-frontdesk-1, since", "dublin-retail-1")


async def test_a_frontdesk_that_falls_silent_is_left_as_well() -> None:
    async with (
        open_frontdesk(oregon(box("oregon-retail-1"))) as first,
        open_frontdesk(dublin()) as second,
        top("--frontdesk", first.url, "--frontdesk", second.url) as terminal,
    ):
        await terminal.shows("oregon-frontdesk-1")
        first.fall_silent()
        await terminal.shows("! this is dublin-frontdesk-1, since", "is silent")


async def test_the_other_regions_frontdesks_are_learned_from_the_board() -> None:
    async with open_frontdesk(dublin()) as second:
        document = board(region("oregon"), region("dublin", frontdesk_url=second.url))
        async with (
            open_frontdesk(document) as first,
            top("--frontdesk", first.url) as terminal,
        ):
            await terminal.shows("oregon-frontdesk-1")
            terminal.type("f")
            await terminal.shows("dublin-frontdesk-1", without=["! "])
            terminal.type("f")
            await terminal.shows("oregon-frontdesk-1")


async def test_while_no_frontdesk_answers_the_last_board_stays_and_gets_old() -> None:
    async with (
        open_frontdesk(oregon(box("oregon-retail-1"))) as frontdesk,
        top("--frontdesk", frontdesk.url) as terminal,
    ):
        await terminal.shows("oregon-retail-1")
        await frontdesk.close()
        await terminal.shows("oregon-retail-1", "s old", "! http://")


async def test_no_text_of_a_board_is_obeyed_by_the_terminal() -> None:
    hostile = box(HOSTILE, engine=HOSTILE, state=HOSTILE, waiting_for=[HOSTILE])
    document = oregon(hostile, frontdesk=HOSTILE, version=HOSTILE)
    document["regions"][0] |= {"why": [HOSTILE], "topics": [{"name": HOSTILE}]}
    async with (
        open_frontdesk(document) as frontdesk,
        top("--frontdesk", frontdesk.url, width=200) as terminal,
    ):
        # The test's screen fails on any escape sequence that isn't ours.
        await terminal.shows(r"\x1b[2J\x1b]0;owned\x07\u202eevil\x9b31m")
        for key in "234567?":
            terminal.type(key)
        await terminal.shows("Keys; any one leaves this page")


async def test_it_follows_the_size_of_the_terminal() -> None:
    async with (
        open_frontdesk(oregon(box("oregon-retail-1"))) as frontdesk,
        top("--frontdesk", frontdesk.url) as terminal,
    ):
        await terminal.shows("oregon-retail-1", without=["WAITS FOR"])
        terminal.resize(170, 40)
        await terminal.shows("WAITS FOR")
        terminal.resize(50, 10)
        await terminal.shows("oregon-retail-1", without=["WAITS FOR"])
        assert all(len(row) <= 50 for row in terminal.screen.rows())


@pytest.mark.parametrize(("environ", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
async def test_no_color_is_obeyed(environ: dict[str, str], coloured: bool) -> None:
    async with (
        open_frontdesk(oregon(box("oregon-retail-1", state="gone"))) as frontdesk,
        top("--frontdesk", frontdesk.url, environ=environ) as terminal,
    ):
        await terminal.shows("gone")
        assert terminal.screen.coloured is coloured


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_leaves_the_terminal_as_it_was(number: int) -> None:
    async with (
        open_frontdesk(oregon()) as frontdesk,
        top("--frontdesk", frontdesk.url) as terminal,
    ):
        await terminal.shows("oregon-frontdesk-1")
        terminal.process.send_signal(number)
        assert await terminal.ends() == 0
        assert terminal.has_echo()


async def test_a_pause_stands_still_and_the_next_key_goes_on() -> None:
    async with (
        open_frontdesk(oregon(box("a"))) as frontdesk,
        top("--frontdesk", frontdesk.url) as terminal,
    ):
        await terminal.shows("ready")
        terminal.type(" ")
        await terminal.shows("paused")
        asked = len(frontdesk.shown)
        await frontdesk.show(oregon(box("a", state="draining")))
        terminal.type("7")
        await terminal.shows("WHAT", "paused")
        terminal.type("1")
        await terminal.shows("ready", "paused", without=["draining"])
        terminal.type(" ")
        await terminal.shows("draining", without=["paused"])
        assert len(frontdesk.shown) == asked


async def test_a_token_is_sent_and_read_anew(tmp_path: Path) -> None:
    file = tmp_path / "operator.jwt"
    file.write_text("first\n")
    async with (
        open_frontdesk(oregon(box("a")), token="first") as frontdesk,
        top("--frontdesk", frontdesk.url, "--token-file", str(file)) as terminal,
    ):
        await terminal.shows("ready")
        file.write_text("second\n")
        frontdesk.token = "second"
        frontdesk.fall_silent()
        await terminal.shows("s old")
        frontdesk.speak()
        await terminal.shows("ready", without=["s old"])
    assert frontdesk.shown[0] == "Bearer first"
    assert frontdesk.shown[-1] == "Bearer second"


async def test_who_is_refused_by_every_frontdesk_gets_one_line() -> None:
    async with (
        open_frontdesk(oregon(), token="secret") as frontdesk,
        top("--frontdesk", frontdesk.url) as terminal,
    ):
        assert await terminal.process.wait() == 1
        await terminal.until(lambda _: "error:" in terminal.screen.printed)
        line = terminal.screen.printed.strip()
    assert line == f"error: {frontdesk.url}: 401 log in"


async def test_json_ends_with_the_one_who_reads_it() -> None:
    async with open_frontdesk(oregon(box("a"))) as frontdesk:
        process = await asyncio.create_subprocess_exec(
            *TOP,
            *("--json", "--frontdesk", frontdesk.url),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        assert process.stderr is not None
        assert json.loads(await process.stdout.readline())["frontdesk"] == "oregon-frontdesk-1"
        # asyncio has no other way to close the reading end.
        process.stdout._transport.close()  # type: ignore[attr-defined]
        assert await process.stderr.read() == b""
        assert await process.wait() == 1
    assert len(frontdesk.shown) == 1


async def test_once_prints_everything_without_a_terminal() -> None:
    boxes = [box(f"oregon-retail-{n}", readers=n) for n in range(60)]
    async with open_frontdesk(oregon(*boxes)) as frontdesk:
        code, out, err = await printed("--once", "--frontdesk", frontdesk.url, "--sort", "name")
    assert (code, err) == (0, "")
    assert sum(line.startswith("oregon-retail-") for line in out.splitlines()) == 60
    assert "\x1b" not in out


@pytest.mark.parametrize(
    ("followed", "code"),
    [
        (("--box", "oregon-retail-1"), 0),
        (("--box", "oregon-retail-2"), 1),
        # A board has the busiest topics only: a quiet one may be missing.
        (("--topic", "news.quiet"), 0),
    ],
)
async def test_once_fails_if_the_box_isnt_there(followed: tuple[str, ...], code: int) -> None:
    async with open_frontdesk(oregon(box("oregon-retail-1"))) as frontdesk:
        done, out, err = await printed("--once", "--frontdesk", frontdesk.url, *followed)
    assert (done, err) == (code, "")
    assert ("is not on this board" in out) == bool(code)


async def test_json_once_is_the_document_and_harmless() -> None:
    async with open_frontdesk(oregon(box(HOSTILE))) as frontdesk:
        code, out, _ = await printed("--once", "--json", "--frontdesk", frontdesk.url)
        assert (code, json.loads(out)) == (0, frontdesk.document)
    assert out.strip().isprintable()


async def test_json_is_a_line_for_each_update_until_it_is_ended() -> None:
    async with open_frontdesk(oregon()) as frontdesk:
        process = await asyncio.create_subprocess_exec(
            *TOP, "--json", "--frontdesk", frontdesk.url, stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        lines = [json.loads(await process.stdout.readline()) for _ in range(2)]
        process.terminate()
        await process.wait()
    assert lines == [frontdesk.document] * 2


async def test_once_goes_to_the_next_frontdesk_and_says_what_is_wrong_with_all() -> None:
    async with (
        open_frontdesk(oregon()) as gone,
        open_frontdesk(dublin()) as second,
    ):
        await gone.close()
        urls = ("--frontdesk", gone.url, "--frontdesk", second.url)
        _, out, _ = await printed("--once", *urls)
        assert "dublin-frontdesk-1" in out
        await second.close()
        code, _, err = await printed("--once", *urls)
    assert code == 1
    assert err.startswith("error: no frontdesk answers: http://127.0.0.1:")
    assert len(err.splitlines()) == 1


def run(*arguments: str) -> str:
    result = CliRunner().invoke(cli, ["top", *arguments])
    assert result.exit_code == 1
    return result.stderr


def test_what_cannot_be_asked_is_one_line(tmp_path: Path) -> None:
    state = tmp_path / "world"
    assert run("--state", str(state)).startswith(f"error: no world in {state}")
    assert "--frontdesk ftp://x" in run("--frontdesk", "ftp://x")
    assert "follow one thing" in run("--frontdesk", "http://x", "--box", "a", "--topic", "b")


def test_a_token_is_not_sent_where_others_can_read_it(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("x")
    text = run("--frontdesk", "http://oregon.example.com", "--token-file", str(file))
    assert text.startswith("error: http://oregon.example.com: a token is sent over https")


@pytest.mark.parametrize("content", ["", "two words", "x" * 9000, "ü"])
def test_a_file_that_holds_no_token_is_one_line_that_does_not_show_it(
    content: str, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text(content)
    text = run("--once", "--frontdesk", "http://127.0.0.1:1", "--token-file", str(file))
    assert text.startswith("error: --token-file: ")
    assert content == "" or content not in text
