"""The glossary of docs/architecture.md: each word means one thing, so it is one type or none.

Types are counted over all languages. A thing that two programs have is named alike in both. Any
other name has two types at most, in the product and its tests together.
"""

from __future__ import annotations

import collections
import functools
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
# Folders with built or installed files, beside those whose names begin with a dot.
NOT_OURS = {"target", "node_modules", "__pycache__", "vendor", "dist"}
LIBRARIES = frozenset({"Python", "Java", "PHP"})
# Words of one thing that programs in several languages have: both halves of a gateway, or the
# publishers' libraries.
SAME = {
    "entrance": LIBRARIES,
    "hub": frozenset({"Python", "Rust"}),
    "outbox": frozenset({"Python", "Rust"}),
    "publisher": LIBRARIES,
    "receipt": frozenset({"Python", "Java"}),
    "topic": frozenset({"Rust", "JavaScript"}),
}
# The data plane's reader of JSON reads no topic: it is named by its module.
OTHERS = {"reader": "dataplane/src/sockjs/json.rs"}
# Types of any folder, tests too, by the ends of files' names.
DEFINITIONS = {
    (".py",): r"(?m)^ *class (\w+)",
    (".rs",): r"(?m)^ *(?:pub(?:\([^)]*\))? )?(?:struct|enum|trait|union|type) (\w+)",
    (".ts", ".js", ".mjs"): r"(?m)^ *(?:export )?(?:class|interface|type) (\w+)\b[^,;]*[{=]",
    (".java", ".php"): r"(?m)^[a-z ]*(?:class|interface|enum|record|trait) (\w+)",
}
# Names of one thing that several publishers' libraries have.
OF_LIBRARIES = {
    *("AccessRefused", "Choice", "Entrance", "Options", "Published", "Publisher", "Refusal"),
    *("Rejected", "Returned", "Unanswered"),
}


class Language(NamedTuple):
    """The places of a language's types, and their definition; a name with _ is private."""

    folders: tuple[str, ...]
    suffixes: tuple[str, ...]
    definition: str


LANGUAGES = {
    "Python": Language(
        ("newsfabric", "operations", "gateway", "wholesale", "retail", "shovels", "localfabric"),
        (".py",),
        r"(?m)^ *class (\w+)[:(]",
    ),
    "Rust": Language(
        ("dataplane/src",), (".rs",), r"(?m)^ *pub(?:\(\w+\))? (?:struct|enum|trait) (\w+)"
    ),
    "JavaScript": Language(
        ("clients/js/src", "wholesale/frontdesk/pages/files"),
        (".ts", ".js"),
        r"(?m)^(?:export )?(?:class|interface|type) (\w+)\b[^,;]*[{=]",
    ),
    "Java": Language(
        ("clients/java/src/main",), (".java",), r"(?m)^[a-z ]*(?:class|interface|enum|record) (\w+)"
    ),
    "PHP": Language(
        ("clients/php/src",), (".php",), r"(?m)^[a-z ]*(?:class|interface|enum|trait) (\w+)"
    ),
}


def types_by_name() -> dict[str, list[str]]:
    """Return the files of all types, by name; a file is named once for each of its types."""
    found = collections.defaultdict(list)
    for suffixes, definition in DEFINITIONS.items():
        for path in sources(ROOT, suffixes):
            for name in re.findall(definition, path.read_text()):
                found[name].append(str(path.relative_to(ROOT)))
    return dict(found)


def words() -> list[str]:
    """Return the words of the first column: ``publisher / reader`` are two, ``copy, race`` too."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    table = text.split("\n## Words\n")[1].split("\n## ")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| ")]
    return [word.strip() for row in rows[1:] for word in re.split(r"[/,]", row)]


def class_name(word: str) -> str:
    return "".join(part.capitalize() for part in word.split())


def sources(folder: Path, suffixes: tuple[str, ...]) -> Iterator[Path]:
    for at, folders, files in os.walk(folder):
        ours = set(folders) - NOT_OURS
        folders[:] = sorted(name for name in ours if not name.startswith("."))
        yield from (Path(at, name) for name in sorted(files) if name.endswith(suffixes))


@functools.cache
def types(language: str) -> dict[str, list[str]]:
    """Return the files of the types of ``language``, by name."""
    found = collections.defaultdict(list)
    folders, suffixes, definition = LANGUAGES[language]
    for path in (path for folder in folders for path in sources(ROOT / folder, suffixes)):
        for name in re.findall(definition, path.read_text()):
            found[name].append(str(path.relative_to(ROOT)))
    return dict(found)


def places_of(word: str) -> dict[str, list[str]]:
    """Return the files that define a type of that name, by language."""
    found = {
        language: [
            path for path in types(language).get(class_name(word), []) if path != OTHERS.get(word)
        ]
        for language in LANGUAGES
    }
    return {language: paths for language, paths in found.items() if paths}


def test_the_glossary_has_the_words_that_the_rest_of_the_page_uses() -> None:
    assert {"region", "gateway", "log", "low", "mark", "directory", "lease", "closing"} <= set(
        words()
    )


def test_a_word_stands_once_in_the_glossary() -> None:
    assert [word for word, count in collections.Counter(words()).items() if count > 1] == []


@pytest.mark.parametrize(
    ("language", "name"),
    [
        ("Python", "Outbox"),
        ("Rust", "Outbox"),
        ("JavaScript", "Subscriber"),
        ("JavaScript", "GatewayUrls"),
        ("Java", "Publisher"),
        ("PHP", "Publisher"),
    ],
)
def test_the_types_of_all_languages_are_found(language: str, name: str) -> None:
    assert len(types(language)[name]) == 1


@pytest.mark.parametrize("word", words())
def test_a_word_is_one_type_or_none(word: str) -> None:
    places = places_of(word)
    assert {language: paths for language, paths in places.items() if len(paths) > 1} == {}
    # A word that isn't of one thing any more leaves the list.
    assert places.keys() == SAME[word] if word in SAME else len(places) <= 1, places


def test_a_name_has_at_most_two_types() -> None:
    found = types_by_name()
    thrice = {name: places for name, places in found.items() if len(places) > 2}
    assert {name: thrice[name] for name in thrice.keys() - OF_LIBRARIES} == {}
    # A name that one library alone has leaves the list.
    libraries = ("clients/java/", "clients/php/", "newsfabric/")
    for name in OF_LIBRARIES:
        assert sum(place.startswith(libraries) for place in found[name]) > 1, name
