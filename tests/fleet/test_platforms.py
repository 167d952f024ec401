from pathlib import Path

import pytest

from fleet.errors import FleetError
from fleet.platforms import (
    Platform,
    PlatformOutcome,
    documents,
    readme_commands,
    steps,
    summary,
    table,
    versions_in,
)

README = (Path(__file__).resolve().parents[2] / "README.md").read_text("utf-8")


def test_the_readmes_commands_are_played_in_its_order_and_end_with_the_world() -> None:
    lines = readme_commands(README).splitlines()
    assert lines[0] == ". .venv/bin/activate"
    assert lines[1].startswith("newsfabric up --detach")
    assert lines[-3].startswith("python examples/publish.py ")
    # The background command has received the message.
    assert lines[-2] == "wait $!"
    assert lines[-1].startswith("newsfabric down")
    assert sum(line.endswith("&") for line in lines) == 1


def test_a_readme_without_that_section_is_reported() -> None:
    with pytest.raises(FleetError, match="has no section"):
        readme_commands("# newsfabric\n")


def test_the_tests_options_are_given_on() -> None:
    script = next(step.script for step in steps(README, "-k shovels") if "pytest" in step.script)
    assert script.endswith("-k shovels")


def test_of_a_log_the_last_count_of_tests_is_printed() -> None:
    log = (
        "== 1 failed, 2 passed in 3.21s ==\n==== 370 passed, 2 skipped in 301.55s (0:05:01) ====\n"
    )
    assert summary(log) == "370 passed, 2 skipped in 301.55s"
    assert summary("ready in 21 s\n") == ""


def test_a_platform_works_if_each_of_its_steps_did() -> None:
    good, bad = (
        PlatformOutcome("set-up", 0, 61.4),
        PlatformOutcome("chaos", 1, 200.0, "1 failed in 2.0s"),
    )
    assert Platform("sid", {}, [good]).works
    trixie = Platform("trixie", versions_in("RabbitMQ 4.0.5\nPHP 8.4.11\n"), [good, bad])
    assert not trixie.works
    assert table([trixie]).splitlines()[2:] == [
        "| trixie | RabbitMQ 4.0.5, PHP 8.4.11 | set-up | works | 61 |",
        "| trixie | RabbitMQ 4.0.5, PHP 8.4.11 | chaos | exit code 1: 1 failed in 2.0s | 200 |",
    ]
    assert documents([trixie]) == [
        {
            "suite": "trixie",
            "versions": {"RabbitMQ": "4.0.5", "PHP": "8.4.11"},
            "outcomes": [
                {"step": "set-up", "code": 0, "seconds": 61.4, "note": ""},
                {"step": "chaos", "code": 1, "seconds": 200.0, "note": "1 failed in 2.0s"},
            ],
            "works": False,
        }
    ]
