"""Counts of words that aren't plain in docstrings and comments, with the place of each finding.

    PYTHONPATH=tests/support python -m plain_words gateway newsfabric/store

A docstring begins with its subject or its verb, not with a pronoun or a question word; comments
name things rather than say "what"; a sentence has at most 30 words. In YAML and Terraform comments,
names of tasks and descriptions count as docstrings.
"""

from __future__ import annotations

import ast
import itertools
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

_PRONOUNS: Final = """
    whether how where why when one ones what who whom whose which whatever whoever whichever those
    these that it its they them their theirs he him his she her hers we us our you your somebody
    anybody nobody everybody someone anyone everyone something anything everything nothing
"""
PRONOUNS: Final = frozenset(_PRONOUNS.split())
MOST_WORDS: Final = 30
# Code, and lines that are laid out by hand: examples, tables, lists of values.
_SETTINGS: Final = frozenset({".yml", ".yaml", ".tf", ".hcl"})
_NAMED: Final = re.compile(r'\s*(?:- name: |description: |description *= )"?([A-Z].*?)"?$')
_LAID_OUT: Final = re.compile(r"^(    |\t|[-*|>+] |\d+\. |::|\.\. )")
_STRING_OR_COMMENT: Final = re.compile(r"""(\"{3}|'{3}|["'])(?:\\.|[^\\])*?\1|#[^\n]*""", re.DOTALL)


class Text(NamedTuple):
    """A docstring or a comment, and the line at which it begins."""

    line: int
    text: str
    is_docstring: bool


class Finding(NamedTuple):
    """A line number, which rule (``pronoun``, ``what`` or ``long``), and the words."""

    line: int
    rule: str
    words: str


def texts(path: Path) -> list[Text]:
    """All docstrings and comments of a file of Python, Rust, YAML or Terraform, in their order."""
    source = path.read_text()
    if path.suffix in _SETTINGS:
        return sorted(_settings(source))
    return sorted(_rust(source) if path.suffix == ".rs" else _python(source))


def _python(source: str) -> Iterator[Text]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            doc = ast.get_docstring(node)
            if doc:
                yield Text(node.body[0].lineno, doc, True)
    # The module tokenize finds the same comments, and takes 25 times as long.
    found = [each for each in _STRING_OR_COMMENT.finditer(source) if each[0].startswith("#")]
    comments = [each[0][1:].lstrip(":") for each in found]
    lines = [source.count("\n", 0, each.start()) + 1 for each in found]
    yield from _blocks(list(zip(lines, comments, strict=True)), False)


def _rust(source: str) -> Iterator[Text]:
    lines: dict[bool, list[tuple[int, str]]] = {True: [], False: []}
    for number, line in enumerate(source.splitlines(), 1):
        match = re.match(r"\s*//([/!]?)(.*)", line)
        if match:
            lines[bool(match[1])].append((number, match[2]))
    for is_docstring, found in lines.items():
        yield from _blocks(found, is_docstring)


def _settings(source: str) -> Iterator[Text]:
    comments: list[tuple[int, str]] = []
    for number, line in enumerate(source.splitlines(), 1):
        comment = re.match(r"\s*#(?!!| ---)(.*)", line)
        name = _NAMED.match(line.split("  # noqa")[0])
        if comment and comment[1].strip():
            comments.append((number, comment[1]))
        elif name:
            yield Text(number, name[1], True)
    yield from _blocks(comments, True)


def _blocks(lines: list[tuple[int, str]], is_docstring: bool) -> Iterator[Text]:
    """Make one text of lines that follow each other."""
    # Lines that follow each other have the same difference to their place in the list.
    for _, group in itertools.groupby(enumerate(lines), lambda each: each[1][0] - each[0]):
        block = [line for _, line in group]
        words = "\n".join(line.removeprefix(" ") for _, line in block)
        yield Text(block[0][0], words, is_docstring)


def sentences(text: str) -> Iterator[str]:
    """The sentences of a text, without examples, tables and lists."""
    for paragraph in re.split(r"\n\s*\n", text):
        lines = paragraph.split("\n")
        if any(_LAID_OUT.match(line) for line in lines):
            continue
        yield from re.split(r"(?<=[.!?:;])\s+", " ".join(lines).strip())


def findings(text: Text) -> Iterator[Finding]:
    """All that isn't plain in one text."""
    words = re.findall(r"[A-Za-z']+", text.text)
    if text.is_docstring and words and words[0].lower() in PRONOUNS:
        yield Finding(text.line, "pronoun", " ".join(words[:8]))
    for match in re.finditer(r"\bwhat\b", text.text, re.IGNORECASE):
        around = text.text[max(0, match.start() - 30) : match.end() + 30]
        yield Finding(text.line, "what", " ".join(around.split()))
    for sentence in sentences(text.text):
        if len(sentence.split()) > MOST_WORDS:
            yield Finding(text.line, "long", sentence)


class WordCounts(NamedTuple):
    """Of some files: docstrings, those that begin with a pronoun, words, "what", long sentences."""

    docstrings: int = 0
    pronouns: int = 0
    words: int = 0
    whats: int = 0
    long: int = 0

    def __add__(self, other: object) -> WordCounts:
        assert isinstance(other, WordCounts)
        return WordCounts(*(a + b for a, b in zip(self, other, strict=True)))

    @property
    def pronoun_share(self) -> float:
        """Docstrings that begin with a pronoun, of 100."""
        return 100 * self.pronouns / max(1, self.docstrings)

    @property
    def what_share(self) -> float:
        """The count of "what" in 1,000 words."""
        return 1000 * self.whats / max(1, self.words)


def count(found_texts: Iterable[Text]) -> WordCounts:
    """The counts of some texts."""
    found = WordCounts()
    for text in found_texts:
        rules = [finding.rule for finding in findings(text)]
        found += WordCounts(
            int(text.is_docstring),
            rules.count("pronoun"),
            len(text.text.split()),
            rules.count("what"),
            rules.count("long"),
        )
    return found


def sources(place: Path) -> list[Path]:
    """The read files below a folder, or the file itself; no links, and none that was built."""
    if place.is_file():
        return [place]
    skipped = {"target", "node_modules", "__pycache__", ".terraform"}
    read = {".py", ".rs", *_SETTINGS}
    found = (path for path in place.rglob("*") if path.suffix in read and path.is_file())
    return sorted(path for path in found if not path.is_symlink() and not skipped & {*path.parts})


def main(places: list[str]) -> None:
    """Print each finding as ``file:line: rule: words``, and the counts of each place."""
    for place in places:
        total = WordCounts()
        for path in sources(Path(place)):
            found = texts(path)
            for finding in (finding for text in found for finding in findings(text)):
                sys.stdout.write(f"{path}:{finding.line}: {finding.rule}: {finding.words}\n")
            total += count(found)
        sys.stdout.write(
            f"{place}: {total.docstrings} docstrings, {total.pronoun_share:.1f} % begin with a "
            f"pronoun; {total.words} words, {total.what_share:.1f} of 1,000 are what; "
            f"{total.long} sentences of more than {MOST_WORDS} words\n"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
