"""Docstrings and comments of all folders are in plain words; the bounds only go down."""

from __future__ import annotations

from pathlib import Path

import pytest
from plain_words import WordCounts, count, findings, sources, texts

ROOT = Path(__file__).parents[1]
# Docstrings of 100 that begin with a pronoun or a question word, "what" in 1,000 words, sentences
# over 30 words.
BOUNDS = (0.5, 0.5, 0)
FOLDERS = (
    "bench",
    "clients",
    "dataplane",
    "deploy",
    "examples",
    "gateway",
    "loadtest",
    "localfabric",
    "logmodel",
    "newsfabric",
    "operations",
    "retail",
    "scripts",
    "shovels",
    "tests",
    "wholesale",
)


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_is_in_plain_words(folder: str) -> None:
    found = sum((count(texts(path)) for path in sources(ROOT / folder)), WordCounts())
    assert found.docstrings, f"nothing in {folder}"
    pronouns, whats, long = BOUNDS
    places = f"PYTHONPATH=tests/support python -m plain_words {folder}"
    assert found.pronoun_share <= pronouns, places
    assert found.what_share <= whats, places
    assert found.long <= long, places


PYTHON = '''"""What is counted.

    one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen
    sixteen seventeen eighteen nineteen twenty and so on, until there are more than thirty of them

The example above is laid out by hand.
"""


def one() -> None:
    """Count this one: what, What."""
    # A comment of two lines
    # says what it says.
    two = 2
    return "what"  # what
'''
RUST = """//! The module.

/// Whether it is so.
fn one() {
    // Of what
    // it is.
}
"""
YAML = """# What is
# what it is.
- name: It runs  # noqa: one-rule
  name: what
# --- a heading ---
# Services begin.
"""
TERRAFORM = """variable "one" {
  description = "Who is told."
  # Of what
}
"""


def rules(path: Path) -> list[tuple[int, str]]:
    """The line and the rule of each finding."""
    return [(one.line, one.rule) for text in texts(path) for one in findings(text)]


def test_docstrings_and_comments_of_python_are_read(tmp_path: Path) -> None:
    path = tmp_path / "one.py"
    path.write_text(PYTHON)
    assert rules(path) == [
        (1, "pronoun"),
        (1, "what"),
        (11, "what"),
        (11, "what"),
        (12, "what"),
        (15, "what"),
    ]
    counted = count(texts(path))
    assert (counted.docstrings, counted.pronouns, counted.whats, counted.long) == (2, 1, 5, 0)


def test_comments_of_rust_are_read(tmp_path: Path) -> None:
    path = tmp_path / "one.rs"
    path.write_text(RUST)
    assert rules(path) == [(3, "pronoun"), (5, "what")]
    assert count(texts(path))[:2] == (2, 1)


def test_comments_and_names_of_yaml_are_read(tmp_path: Path) -> None:
    path = tmp_path / "one.yml"
    path.write_text(YAML)
    assert rules(path) == [(1, "pronoun"), (1, "what"), (1, "what"), (3, "pronoun")]
    assert count(texts(path))[:2] == (3, 2)


def test_comments_and_descriptions_of_terraform_are_read(tmp_path: Path) -> None:
    path = tmp_path / "one.tf"
    path.write_text(TERRAFORM)
    assert rules(path) == [(2, "pronoun"), (3, "what")]


def test_a_sentence_of_more_than_thirty_words_is_found(tmp_path: Path) -> None:
    path = tmp_path / "one.py"
    path.write_text(f'"""{"word " * 31}end."""\n')
    assert rules(path) == [(1, "long")]
