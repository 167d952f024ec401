"""``newsfabric logs``: the logs in the directory, and numbers that are lost for good."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest
from click.testing import CliRunner, Result
from envelopes import START_MS, envelope

from newsfabric.store import Store, open_store
from newsfabric.store.logs import DirectoryRow, Log, NumberState
from newsfabric.topics import load_topics
from operations.cli import cli

OREGON = Log("oregon", "oregon-router-1", START_MS)
DUBLIN = Log("dublin", "dublin-router-1", START_MS + 1_500)
# A hundred years: START_MS is long past on this machine's clock.
TOPICS = '[[topic]]\npattern = "news.#"\nttl = "36500d"\n'

T = TypeVar("T")


class LogsStage:
    """A store of two logs, and the command line that uses it."""

    def __init__(self, folder: Path) -> None:
        self.topics = folder / "topics.toml"
        self.topics.write_text(TOPICS)
        self.url = f"sqlite:{folder / 'news.db'}"

    def use_store(self, use: Callable[[Store], Coroutine[Any, Any, T]]) -> T:
        async def run() -> T:
            store = open_store(self.url, load_topics(self.topics))
            try:
                return await use(store)
            finally:
                await store.close()

        return asyncio.run(run())

    def run(self, *words: str, answer: str = "") -> Result:
        at = ("--store", self.url, "--topics", str(self.topics))
        return CliRunner().invoke(cli, ["logs", words[0], *at, *words[1:]], input=answer)

    def states(self) -> dict[int, NumberState]:
        found = self.use_store(lambda store: store.numbers(OREGON, first=1, last=99, limit=99))
        return {number.seq: number.state for number in found}


@pytest.fixture
def place(tmp_path: Path) -> LogsStage:
    place = LogsStage(tmp_path)

    async def fill(store: Store) -> None:
        await store.list_log(OREGON)
        await store.change_log(
            DirectoryRow(OREGON, version=2, low=9, ended=1_011, voids=((10, 10), (12, 13)))
        )
        await store.list_log(DUBLIN)
        await store.write([envelope(1), envelope(3)])

    place.use_store(fill)
    return place


def test_all_logs_are_listed_with_what_is_settled_and_where_they_ended(place: LogsStage):
    lines = [line.split() for line in place.run("list").stdout.splitlines()[1:]]
    began = ["2025-01-01", "00:00:01"], ["2025-01-01", "00:00:00"]
    assert lines == [
        ["dublin", "dublin-router-1", str(DUBLIN.epoch), *began[0], "0", "open"],
        ["oregon", "oregon-router-1", str(OREGON.epoch), *began[1], "9", "1,011", "3"],
    ]


def test_a_region_or_the_open_ones_alone(place: LogsStage):
    assert "dublin" not in place.run("list", "--region", "oregon").stdout
    assert "oregon" not in place.run("list", "--open").stdout
    assert place.run("list", "--open", "--region", "oregon").stdout == "no logs\n"


def test_as_json_every_log_is_an_object(place: LogsStage):
    assert json.loads(place.run("list", "--json", "--region", "oregon").stdout) == [
        {
            "region": "oregon",
            "router": "oregon-router-1",
            "epoch": START_MS,
            "low": 9,
            "ended": 1_011,
            "voids": [[10, 10], [12, 13]],
        }
    ]


def test_numbers_that_are_lost_are_made_void_and_those_that_are_there_stay(place: LogsStage):
    done = place.run("void", "oregon", "oregon-router-1", str(START_MS), "1-4", "--yes")
    assert (done.exit_code, done.stdout) == (0, "2 made void, 2 left alone\n")
    assert place.states() == {
        1: NumberState.MESSAGE,
        2: NumberState.VOID,
        3: NumberState.MESSAGE,
        4: NumberState.VOID,
    }


def test_a_message_that_cant_be_read_is_made_void(place: LogsStage):
    with contextlib.closing(sqlite3.connect(place.url.removeprefix("sqlite:"))) as file, file:
        assert file.execute("UPDATE messages SET body = x'00' WHERE seq = 3").rowcount == 1
    assert place.states()[3] is NumberState.HALF
    done = place.run("void", "oregon", "oregon-router-1", str(START_MS), "3", "--yes")
    assert (done.exit_code, done.stdout) == (0, "1 made void, 0 left alone\n")
    assert place.states()[3] is NumberState.VOID


def test_it_asks_before_it_does_what_cant_be_taken_back(place: LogsStage):
    words = ("void", "oregon", "oregon-router-1", str(START_MS), "2")
    refused = place.run(*words, answer="n\n")
    assert refused.exit_code == 1
    assert "1 numbers are lost for good" in refused.output
    assert 2 not in place.states()
    assert place.run(*words, answer="y\n").exit_code == 0
    assert place.states()[2] is NumberState.VOID


def test_nothing_to_do_is_no_question(place: LogsStage):
    done = place.run("void", "oregon", "oregon-router-1", str(START_MS), "3", "--json")
    assert (done.exit_code, json.loads(done.stdout)) == (0, {"void": [], "left_alone": 1})


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("oregon", "nobody", str(START_MS), "1"), "no log of router nobody"),
        (("dublin", "oregon-router-1", str(START_MS), "1"), "in region dublin"),
        (("oregon", "oregon-router-1", str(START_MS), "1012"), "this log ended at 1011"),
        # The router may still use this number.
        (("dublin", "dublin-router-1", str(START_MS + 1_500), "1"), "open, and settled up to 0"),
    ],
)
def test_a_log_or_number_that_isnt_there_is_reported(
    place: LogsStage, words: tuple[str, ...], why: str
):
    done = place.run("void", *words, "--yes")
    assert done.exit_code == 1
    assert why in done.stderr


@pytest.mark.parametrize("numbers", ["0", "5-4", "1-100001", "x", "1-", "-3", "9" * 19])
def test_other_numbers_are_a_usage_error(place: LogsStage, numbers: str):
    done = place.run("void", "oregon", "oregon-router-1", str(START_MS), "--yes", "--", numbers)
    assert done.exit_code == 2


def test_without_topics_a_store_cant_be_opened(place: LogsStage):
    done = CliRunner().invoke(cli, ["logs", "list", "--store", place.url])
    assert done.exit_code == 1
    assert "--topics" in done.stderr


@pytest.mark.sockets
def test_a_gateway_that_cannot_be_asked_is_reported_and_is_an_error() -> None:
    words = ["logs", "missing", "--gateway", "http://127.0.0.1:1"]
    output = CliRunner().invoke(cli, words)
    assert output.exit_code == 1
    assert "http://127.0.0.1:1: can't be asked: " in output.output
    output = CliRunner().invoke(cli, [*words, "--json"])
    assert (output.exit_code, [*json.loads(output.output)["http://127.0.0.1:1"]]) == (1, ["error"])


def test_what_is_no_url_is_refused() -> None:
    output = CliRunner().invoke(cli, ["logs", "missing", "--gateway", "oregon-retail-1"])
    assert (output.exit_code, "write it as http://HOST:PORT" in output.output) == (2, True)
