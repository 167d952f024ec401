"""The command line: its messages when something is missing or wrong."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from newsfabric.settings import Fabric, Node, Region, dump_fabric
from wholesale.commands import main

NODE = (Node("n", "amqp://127.0.0.1:1", "http://127.0.0.1:1"),)


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Result]:
    """Run a service with valid files and ``changed`` options."""
    region = Region(
        name="oregon",
        frontdesk_url="http://127.0.0.1:1",
        client=(Node("c", "amqp://127.0.0.1:1", "http://127.0.0.1:1"),),
        core=NODE,
    )
    (tmp_path / "fabric.json").write_text(dump_fabric(Fabric((region,))), encoding="utf-8")
    topics = '[[topic]]\npattern = "news.*"\n'
    (tmp_path / "topics.toml").write_text(topics, encoding="utf-8")

    def run(service: str, **changed: str) -> Result:
        options = {
            "name": "oregon-1",
            "region": "oregon",
            "fabric": str(tmp_path / "fabric.json"),
            "topics": str(tmp_path / "topics.toml"),
            "store": "memory:",
            "port": "0",
        } | changed
        words = [word for name, value in options.items() for word in (f"--{name}", value)]
        return CliRunner().invoke(main, [service, *words])

    return run


@pytest.mark.parametrize("service", ["router", "mailbox", "frontdesk"])
def test_help_has_every_option_its_variable_and_examples(service: str):
    text = CliRunner().invoke(main, [service, "--help"]).output
    for option in ("name", "region", "fabric", "topics", "store", "host", "port", "log-level"):
        assert f"--{option} " in text
    assert "NEWSFABRIC_REGION" in text
    assert f"python -m wholesale {service} --name" in text


def test_options_may_come_from_the_environment(run: Callable[..., Result], tmp_path: Path):
    answer = CliRunner().invoke(main, ["router"], env={"NEWSFABRIC_NAME": "Not A Name"})
    assert answer.exit_code == 2
    assert "a name has a-z, 0-9 and -" in answer.output


@pytest.mark.parametrize(
    ("service", "changed", "line"),
    [
        ("router", {"region": "mars"}, "no region 'mars'"),
        ("router", {"store": "paper:"}, "unknown store 'paper:'"),
        ("router", {"topics": "/nowhere/topics.toml"}, "/nowhere/topics.toml"),
        ("frontdesk", {"fabric": "/nowhere/fabric.json"}, "/nowhere/fabric.json"),
        ("frontdesk", {"host": "0.0.0.0"}, "give --api-key-file"),
        pytest.param(
            "frontdesk",
            {"board-key-file": "/nowhere/board-keys"},
            "--board-key-file: ",
            # It tries a broker before it reads the file.
            marks=pytest.mark.sockets,
        ),
    ],
)
def test_what_is_wrong_is_one_clear_line_and_exit_1(
    run: Callable[..., Result],
    expect_error_log: Callable[[str], None],
    caplog: pytest.LogCaptureFixture,
    service: str,
    changed: dict[str, str],
    line: str,
):
    expect_error_log(line)
    answer = run(service, **changed)
    assert answer.exit_code == 1
    assert len([r for r in caplog.records if r.levelno >= logging.ERROR]) == 1
    assert "Traceback" not in caplog.text
