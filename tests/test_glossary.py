"""The glossary of docs/architecture.md: each word means one thing, so it is one class or none."""

from __future__ import annotations

import collections
import functools
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("newsfabric", "operations", "gateway", "wholesale", "retail", "shovels", "localfabric")
# Folders of ours with built or installed files.
NOT_OURS = {"target", "node_modules", "__pycache__"}
PYTHON = r"(?m)^ *class (\w+)[:(]"
RUST = r"(?m)^ *pub(?:\(\w+\))? (?:struct|enum|trait) (\w+)"


def words() -> list[str]:
    """Return the words of the first column: ``publisher / reader`` are two, ``copy, race`` too."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    table = text.split("\n## Words\n")[1].split("\n## ")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| ")]
    return [word.strip() for row in rows[1:] for word in re.split(r"[/,]", row)]


def class_name(word: str) -> str:
    return "".join(part.capitalize() for part in word.split())


def sources(folder: Path, suffix: str) -> Iterator[Path]:
    for at, folders, files in os.walk(folder):
        folders[:] = sorted(set(folders) - NOT_OURS)
        yield from (Path(at, name) for name in sorted(files) if name.endswith(suffix))


@functools.cache
def types(folder: str, suffix: str, definition: str) -> dict[str, list[str]]:
    """Return the files of the types below ``folder``, by name; a name with _ is private."""
    found = collections.defaultdict(list)
    for path in sources(ROOT / folder, suffix):
        for name in re.findall(definition, path.read_text()):
            found[name].append(str(path.relative_to(ROOT)))
    return dict(found)


def python_classes(name: str) -> list[str]:
    return [place for each in PACKAGES for place in types(each, ".py", PYTHON).get(name, [])]


def rust_types(name: str) -> list[str]:
    return types("dataplane/src", ".rs", RUST).get(name, [])


def test_the_glossary_has_the_words_that_the_rest_of_the_page_uses() -> None:
    assert {"region", "gateway", "log", "low", "mark", "directory", "lease", "closing"} <= set(
        words()
    )


def test_a_word_stands_once_in_the_glossary() -> None:
    assert [word for word, count in collections.Counter(words()).items() if count > 1] == []


def test_the_classes_of_both_languages_are_found() -> None:
    assert rust_types("Outbox")
    assert python_classes("Outbox")


@pytest.mark.parametrize("word", words())
def test_a_word_is_one_class_or_none(word: str) -> None:
    places = {"Python": python_classes(class_name(word)), "Rust": rust_types(class_name(word))}
    assert {language: found for language, found in places.items() if len(found) > 1} == {}
