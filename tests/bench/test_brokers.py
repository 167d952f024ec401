"""The RabbitMQs that are compared, their order, and the report about them."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.brokers import __main__ as compare
from bench.brokers import worlds
from bench.brokers.rabbitmqs import VARIABLE, Rabbitmq, compared_rabbitmqs
from bench.brokers.turns import Figure, Found, in_turns, rows
from localfabric.world.rabbitmq_home import RabbitmqHome
from newsfabric.errors import SetupError
from tests.support.rabbitmq_tree import tree

TIME = Figure("it takes", "s")
LOST = Figure("lost", "", 0, max, at_most=0)


def rabbitmq(version: str) -> Rabbitmq:
    home = RabbitmqHome(
        version=version, sbin=Path(version), epmd=Path("/nowhere/epmd"), environment={}
    )
    return Rabbitmq(name=version, home=home, folder=None)


OLD, NEW = rabbitmq("3.10.8"), rabbitmq("4.3.6")


@pytest.fixture
def system(tmp_path: Path) -> Path:
    return Path(tree(tmp_path / "system", "3.10.8"))


def test_the_installed_one_comes_first_then_the_trees_then_those_that_are_named(
    tmp_path: Path, system: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new = tree(tmp_path / ".tools/rabbitmq-trixie", "4.0.5")
    newest = tree(tmp_path / "elsewhere", "4.3.6")
    # A tree that is named again; a folder without RabbitMQ; another tree of the same version.
    named = f"{new}, {tmp_path / 'none'},{newest},{tree(tmp_path / 'own', '4.3.6')}"
    found = compared_rabbitmqs(tmp_path, {VARIABLE: named, "PATH": "/nowhere"}, system=system)
    assert [(each.name, each.options) for each in found] == [
        ("3.10.8", ()),
        ("4.0.5", ("--rabbitmq", new)),
        ("4.3.6", ("--rabbitmq", newest)),
        (f"4.3.6 in {tmp_path / 'own'}", ("--rabbitmq", str(tmp_path / "own"))),
    ]
    assert f"not compared: {tmp_path / 'none'} has no" in capsys.readouterr().err


def test_they_take_turns_and_the_first_is_the_floor_of_the_others() -> None:
    order = []
    seconds = {OLD.name: [4.0, 2.0, 3.0], NEW.name: [1.0, 9.0, 1.5]}

    def measure(each: Rabbitmq) -> Found:
        order.append(each)
        return {TIME: seconds[each.name].pop(0), LOST: len(order) % 2}

    found = list(rows(in_turns([OLD, NEW], measure, 3)))
    assert order == [OLD, NEW] * 3
    assert [(row.figure, row.value, row.ratio) for row in found] == [
        ("it takes, 3.10.8", 3.0, ""),
        ("it takes, 4.3.6", 1.5, "0.50"),
        ("lost, 3.10.8", 1, ""),
        ("lost, 4.3.6", 0, "0.00"),
    ]
    assert [row.reached for row in found] == [None, None, False, True]


def test_one_that_cannot_run_says_why_and_the_others_go_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def measure(each: Rabbitmq) -> Found:
        if each is OLD:
            raise SetupError("no Erlang")
        return {TIME: 2.0}

    found = list(rows(in_turns([OLD, NEW], measure, 2)))
    assert [(row.figure, row.value, row.floor) for row in found] == [("it takes, 4.3.6", 2.0, None)]
    assert "not measured: RabbitMQ 3.10.8: no Erlang" in capsys.readouterr().err


def test_one_alone_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "compared_rabbitmqs", lambda *_: [OLD])
    with pytest.raises(SetupError, match="no two RabbitMQs to compare"):
        compare.measure()


def test_a_message_is_charged_with_what_is_taken_beyond_idling() -> None:
    messages = worlds.LOAD.rate * (1 + worlds.LOAD.seconds)
    # Half a core for so long that each message takes a millisecond of it.
    busy, idle = {"core": 0.75, "client": 0.25}, {"core": 0.25, "client": 0.25}
    assert worlds.each_message(busy, idle, messages / 500) == {"core": 1000.0, "client": 0.0}
