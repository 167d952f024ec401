"""The page behind the board's numbers, made of docs/metrics.md. Pure but for the read of that file.

It reads the tables that ``make metrics`` writes, and no other Markdown.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_SECTION: Final = re.compile(r"^## (.+)$", re.MULTILINE)
_CODE: Final = re.compile(r"`(.+?)`")


def metrics_file() -> Path:
    """Return the path of metrics.md: beside this module in a wheel, else in the checkout."""
    installed = Path(__file__).with_name("metrics.md")
    return installed if installed.is_file() else Path(__file__).parents[3] / "docs" / "metrics.md"


def page(text: str) -> str:
    """Return the page of ``text``. A metric's anchor is its family's name, without ``_total``."""
    head, *parts = _SECTION.split(text)
    sections = dict(zip(parts[::2], parts[1::2], strict=True))
    labels = {row[0]: row[1] for row in _rows(sections.pop("Labels"))}
    # A title, and the words for who edits the file.
    _, _, *intro = head.strip().split("\n\n")
    return _PAGE.format(
        intro="\n".join(f"  <p>{_rich(paragraph)}</p>" for paragraph in intro),
        body="\n".join(
            line for title, rows in sections.items() for line in _section(title, rows, labels)
        ),
    )


def _rows(table: str) -> list[list[str]]:
    """Return the cells of a table's rows, without its head."""
    lines = [line for line in table.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def _section(title: str, table: str, labels: dict[str, str]) -> Iterator[str]:
    anchor = re.sub(r"\W+", "-", title.lower())
    yield f'  <section aria-labelledby="of-{anchor}">'
    yield f'    <h2 id="of-{anchor}">{html.escape(title)}</h2>'
    yield "    <dl>"
    for name, kind, used, unit, meaning in _rows(table):
        details = [f"{kind} of {unit}"]
        details += [
            f"{_rich(label)}: {_rich(labels[label])}" for label in used.split(", ") if label
        ]
        family = name.strip("`").removesuffix("_total" if kind == "counter" else "")
        small = "".join(f" <small>{one}</small>" for one in details)
        yield f'      <div id="{family}">'
        yield f'        <dt><a href="#{family}">{_rich(name)}</a></dt>'
        yield f"        <dd>{_rich(meaning)}.{small}</dd>"
        yield "      </div>"
    yield "    </dl>"
    yield "  </section>"


def _rich(text: str) -> str:
    """Return ``text`` as HTML, with text between backticks as code."""
    return _CODE.sub(r"<code>\1</code>", html.escape(text, quote=False))


_PAGE: Final = """<!doctype html>
<html lang="en">
<head>
  <meta charset="utf-8">
  <meta name="viewport" content="width=device-width, initial-scale=1">
  <meta name="color-scheme" content="light dark">
  <meta name="referrer" content="no-referrer">
  <title>Metrics – newsfabric</title>
  <link rel="icon" href="/static/board-icon.svg" type="image/svg+xml">
  <link rel="stylesheet" href="/static/board.css">
  <link rel="stylesheet" href="/static/board-metrics.css">
  <script src="/static/board-theme.js"></script>
</head>
<body>
<header class="masthead">
  <p class="brand"><a href="/board">newsfabric</a> <span>Metrics</span></p>
</header>
<main class="metrics">
  <h1>Metrics</h1>
{intro}
{body}
</main>
</body>
</html>
"""
