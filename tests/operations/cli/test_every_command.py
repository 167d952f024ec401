"""Every command, when its output or a folder can't be written: one line, and no traceback.

All commands are tested, also those that another package adds: tests/support/every_command.py.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping

import every_command
import pytest

COMMANDS = [words for words, _ in every_command.commands()]

# Exit code and stderr, by command and by fault.
Played = Mapping[tuple[str, str], tuple[int, str]]


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    folder = tmp_path_factory.mktemp("commands")
    program = [sys.executable, every_command.__file__, str(folder)]
    done = subprocess.run(program, capture_output=True, text=True, check=True)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return {(words, way): (code, output) for words, way, code, output in lines}


@pytest.mark.parametrize("words", COMMANDS)
def test_a_command_says_in_words_what_it_cannot_have(played: Played, words: str) -> None:
    for way in every_command.WAYS:
        code, output = played[words, way]
        where = f"newsfabric {words}, {way}: {output}"
        assert code in (0, 1, 2), where
        assert "Traceback" not in output, where
        assert "Exception ignored" not in output, where


@pytest.mark.parametrize("words", COMMANDS)
def test_the_help_of_a_command_ends_with_its_reader(played: Played, words: str) -> None:
    assert played[words, "help that nobody reads"] == (1, "")
    assert played[words, "help on a full disk"] == (1, "error: No space left on device\n")
    assert played[words, "help in ASCII"] == (0, "")


def test_a_folder_that_cannot_be_made_is_named(played: Played) -> None:
    way = "a folder that can't be written"
    refused = every_command.REFUSED
    for words in ("certs init", "publishers"):
        code, output = played[words, way]
        assert code == 1
        assert output.startswith("error: ")
        assert refused in output
