"""The environment variables that programs started by us see."""

from __future__ import annotations

from reaper import VARIABLE as OF_TESTS

from localfabric.world.processes import MARKER as OF_WORLDS
from newsfabric.process.environment import without_secrets
from newsfabric.process.logs import handed_down


def test_no_login_is_handed_down() -> None:
    logins = {
        "NEWSFABRIC_AMQP_PASSWORD": "x",
        "NEWSFABRIC_STORE": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
    }
    assert without_secrets(logins | {"PATH": "/bin", "LC_ALL": "C"}) == {
        "PATH": "/bin",
        "LC_ALL": "C",
    }


def test_the_marks_by_which_processes_are_found_are_and_how_to_log() -> None:
    marks = {**handed_down("json", process="a", region="b"), OF_WORLDS: "/w", OF_TESTS: "1"}
    assert without_secrets(marks) == marks
