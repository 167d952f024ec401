"""The log of a service: bounded, and each record a line."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.native.program import find_program
from newsfabric.errors import SetupError
from newsfabric.process.logs import (
    BURST,
    FORMAT,
    MAX_FIELD,
    MAX_LINE,
    MAX_TRACEBACK,
    PAUSE,
    Bounded,
    JsonLines,
    LineFormatter,
    LogFormat,
    handed_down,
)


def record(text: str, *args: object, at: float = 0.0, line: int = 1) -> logging.LogRecord:
    made = logging.LogRecord("gateway", logging.WARNING, "gateway/x.py", line, text, args, None)
    made.created = at
    return made


def test_a_place_says_so_many_lines_and_then_one_now_and_then() -> None:
    bounded = Bounded()
    passed = [bounded.filter(record("no", at=n / 1000)) for n in range(BURST + 900)]
    assert passed == [True] * BURST + [False] * 900
    late = record("%s", "once more", at=PAUSE + 1)
    assert bounded.filter(late)
    line = LineFormatter(FORMAT).format(late)
    assert line.endswith("WARNING gateway: once more (and 900 more lines like this one)")
    assert not bounded.filter(record("no", at=PAUSE + 1))


def test_places_dont_share_what_they_may_say() -> None:
    bounded = Bounded()
    for _ in range(2 * BURST):
        bounded.filter(record("a flood", line=1))
    assert bounded.filter(record("something else", line=2))


def test_after_a_pause_a_place_may_say_as_much_as_at_first() -> None:
    bounded = Bounded()
    for n in (0.0, BURST * PAUSE):
        passed = [bounded.filter(record("no", at=n)) for _ in range(BURST + 1)]
        assert passed == [True] * BURST + [False]


@given(st.text() | st.text("\r\n\x1b\x85\u2028ab"))
def test_whatever_a_stranger_wrote_is_one_line_and_no_longer_than_a_line_may_be(text: str) -> None:
    line = LineFormatter(FORMAT).format(record("a stranger says %s", text))
    assert line.splitlines() == [line]
    assert len(line) <= MAX_LINE + 1
    assert "a stranger says" in line


def test_a_traceback_stands_behind_its_line_and_only_its_end_if_it_is_long() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(LineFormatter(FORMAT))
    logger = logging.Logger("gateway")
    logger.addHandler(handler)
    try:
        raise ValueError("x" * 3 * MAX_TRACEBACK)
    except ValueError:
        logger.exception("it failed")
    line, _, rest = stream.getvalue().partition("\n")
    assert line.endswith("ERROR gateway: it failed")
    assert rest == "    …" + "x" * MAX_TRACEBACK + "\n"


def failed(text: str, form: logging.Formatter) -> str:
    """Return the log of an error whose text comes from a stranger."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(form)
    logger = logging.Logger("gateway")
    logger.addHandler(handler)
    try:
        raise ValueError(text)
    except ValueError:
        logger.exception("it failed", stack_info=True)
    return stream.getvalue()


@given(st.text("\r\n\x1b\x85\u2028\ud800ab"))
def test_no_line_of_a_traceback_looks_like_a_record_or_is_obeyed(text: str) -> None:
    forged = f"\n2026-11-22 18:00:00,000 ERROR gateway: it burns{text}"
    first, *others = failed(forged, LineFormatter(FORMAT)).removesuffix("\n").split("\n")
    assert first.endswith("ERROR gateway: it failed")
    assert all(line.startswith("    ") for line in others)
    assert all(line.splitlines() == [line] and "\x1b" not in line for line in others)


def test_a_record_is_one_object_with_the_time_in_utc_and_who_says_it() -> None:
    made = record("%d readers", 7, at=1_795_372_168.1239)
    line = JsonLines("oregon-retail-1-gateway", "oregon").format(made)
    assert json.loads(line) == {
        "time": "2026-11-22T18:29:28.123Z",
        "level": "warning",
        "logger": "gateway",
        "message": "7 readers",
        "process": "oregon-retail-1-gateway",
        "region": "oregon",
    }


def test_what_a_record_is_about_are_fields_of_a_closed_list() -> None:
    made = record("closing %d", 3)
    vars(made).update(connection=3, identity="0ab", id=None, token="secret", body="news")
    fields = json.loads(JsonLines().format(made))
    assert (fields["connection"], fields["identity"]) == ("3", "0ab")
    assert fields.keys() == {"time", "level", "logger", "message", "connection", "identity"}


def test_lines_that_were_left_out_are_a_number() -> None:
    bounded = Bounded()
    for n in range(BURST + 5):
        bounded.filter(record("no", at=n / 1000))
    late = record("once more", at=PAUSE + 1)
    assert bounded.filter(late)
    assert json.loads(JsonLines().format(late))["suppressed"] == 5


@given(st.text(st.characters(codec=None)) | st.text('\r\n\x1b\x85\u2028\ud800"\\ab'))
def test_whatever_a_stranger_wrote_is_one_line_of_json(text: str) -> None:
    made = record("a stranger says %s", text)
    made.message_id = text
    line = JsonLines().format(made)
    assert line.encode().decode().splitlines() == [line]
    assert not any("\x7f" <= letter <= "\x9f" or letter < " " for letter in line)
    fields = json.loads(line)
    whole = f"a stranger says {text}"
    assert fields["message"] == (whole if len(whole) <= MAX_LINE else f"{whole[:MAX_LINE]}…")
    assert len(fields["message_id"]) <= MAX_FIELD + 1


def test_a_traceback_is_within_the_line_and_only_its_end_if_it_is_long() -> None:
    (line,) = failed("forged\nERROR", JsonLines()).splitlines()
    fields = json.loads(line)
    assert fields["message"] == "it failed"
    assert "raise ValueError(text)\nValueError: forged\nERROR\nStack" in fields["traceback"]
    (line,) = failed("x" * 3 * MAX_TRACEBACK, JsonLines()).splitlines()
    assert len(json.loads(line)["traceback"]) == MAX_TRACEBACK + 1


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("text", ["option", "environment"])
def test_every_process_has_the_option_and_the_variable(form: str, text: str) -> None:
    """The process fails at once and logs it: there is no such topics.toml."""
    option = ["--log-format", form] if text == "option" else []
    command = [sys.executable, "-m", "wholesale", "router", "--name", "a", "--region", "oregon"]
    command += ["--fabric", "none.json", "--topics", "none.toml", "--store", "memory:"]
    done = subprocess.run(
        [*command, "--port", "0", *option],
        env={**os.environ, **({} if option else {"NEWSFABRIC_LOG_FORMAT": form})},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    first, last = done.stderr.splitlines()
    if form == "json":
        who = ("a", "oregon")
        assert (json.loads(first)["process"], json.loads(first)["region"]) == who
        assert json.loads(last)["level"] == "critical"
    else:
        assert "INFO newsfabric.process.service: a starts, pid" in first
        assert "CRITICAL newsfabric.process.service: a: no none.json" in last


@pytest.mark.parametrize(
    "process", ["gateway", "retail", "shovels", "wholesale router", "wholesale frontdesk"]
)
def test_its_help_names_it(process: str) -> None:
    command = [sys.executable, "-m", *process.split(), "--help"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert "--log-format [text|json]" in done.stdout


def test_a_fault_of_ours_that_ends_a_process_is_one_record_too() -> None:
    script = (
        "from newsfabric.process.service import run\n"
        "async def main(stop): raise ValueError('a\\nbug')\n"
        "import click\n"
        "from newsfabric.process.service import process_options\n"
        "@click.command()\n@process_options\n"
        "def command(): run(main, name='a', log_level='info')\n"
        "command(['--log-format', 'json'])\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 1
    last = json.loads(done.stderr.splitlines()[-1])
    assert (last["level"], last["message"]) == ("critical", "a ends by a fault of ours")
    assert last["traceback"].endswith("ValueError: a\nbug")


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_data_plane_logs_as_its_control_plane_does(form: LogFormat, tmp_path: Path) -> None:
    try:
        program = find_program()
    except SetupError as exc:
        if "CI" in os.environ:
            raise
        pytest.skip(str(exc))
    done = subprocess.run(
        [program, "--control", str(tmp_path / "none" / "socket"), "--port", "0"],
        env=handed_down(form, process="box-1-gateway", region="oregon"),
        capture_output=True,
        text=True,
    )
    (line,) = done.stderr.splitlines()
    if form == "text":
        assert line.startswith("newsfabric-dataplane: ")
        return
    fields = json.loads(line)
    assert fields.keys() == {"time", "level", "logger", "message", "process", "region"}
    assert (fields["level"], fields["logger"]) == ("error", "dataplane")
    assert (fields["process"], fields["region"]) == ("box-1-gateway", "oregon")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", fields["time"])
