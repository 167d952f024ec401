"""The catalogue of metrics as docs/metrics.md and as the page behind the board's numbers. Pure.

``scripts/metrics`` writes both, and a test fails when they are outdated.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final

from newsfabric.kinds import KINDS
from observability.catalogue import LABELS, Metric

#: The meaning of the first word of a name.
TITLES: Final = {
    "amqp": "links to brokers",
    "service": "every service",
    "tls": "TLS",
    **{row.metrics: row.title for row in KINDS.values()},
}

_INTRO: Final = (
    "Every process serves `/metrics` for operators' programs: a gateway and a frontdesk on their"
    " `--admin-port`, the others on their `--port`. Names are"
    " `newsfabric_<process kind>_<noun>_<unit>`: a counter ends in `_total`, times are in seconds,"
    " sizes in bytes. `amqp`, `store` and `service` are parts that several kinds of process have."
)
_MORE: Final = (
    "Beside these there are the `process_` and `python_` metrics of Prometheus's client.",
    "As OpenMetrics, which a scraper asks for by `Accept`, delays carry exemplars: the `id` of a"
    " message that took so long. `newsfabric trace ID` shows its way.",
    "The board and `newsfabric top` call a metric by its name without `newsfabric_` and `_total`;"
    " then comes `.p50` or `.p99` of the last ten seconds, or the value of a label.",
)


def markdown(metrics: Sequence[Metric]) -> str:
    """Return the text of docs/metrics.md."""
    lines = ["# Metrics", "", "Written by `make metrics` from the code; don't edit.", "", _INTRO]
    lines += [line for text in _MORE for line in ("", text)]
    for kind, group in _by_kind(metrics):
        lines += ["", f"## {_title(kind)}", ""]
        lines += ["| name | type | labels | unit | meaning |", "|---|---|---|---|---|"]
        lines += [_row(metric) for metric in group]
    lines += ["", "## Labels", "", "| label | values |", "|---|---|"]
    lines += [f"| `{label}` | {values} |" for label, values in sorted(LABELS.items())]
    return "\n".join(lines) + "\n"


def _title(kind: str) -> str:
    title = TITLES.get(kind, kind)
    return title[0].upper() + title[1:]


def _row(metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    meaning = metric.meaning + _where(metric)
    cells = (f"`{metric.full_name}`", metric.type, labels, metric.unit, meaning)
    return f"| {' | '.join(cells)} |".replace("|  |", "| |")


def _where(metric: Metric) -> str:
    """Return the processes, if several kinds have the metric."""
    return f" ({', '.join(metric.processes)})" if len(metric.processes) > 1 else ""


def page(metrics: Sequence[Metric]) -> str:
    """Return a frontdesk's page. A metric's anchor is its family's name, without ``_total``."""
    return _PAGE.format(
        intro=_rich(_INTRO), more=_paragraphs(_MORE), body="\n".join(_body(metrics))
    )


def _body(metrics: Sequence[Metric]) -> Iterator[str]:
    for kind, group in _by_kind(metrics):
        yield f'  <section aria-labelledby="of-{kind}">'
        yield f'    <h2 id="of-{kind}">{html.escape(_title(kind))}</h2>'
        yield "    <dl>"
        for metric in group:
            yield f'      <div id="{metric.name}">'
            yield f'        <dt><a href="#{metric.name}"><code>{metric.full_name}</code></a></dt>'
            yield f"        <dd>{_rich(metric.meaning)}.{_details(metric)}</dd>"
            yield "      </div>"
        yield "    </dl>"
        yield "  </section>"


def _details(metric: Metric) -> str:
    told = [f"{metric.type} of {metric.unit}", f"in {', '.join(metric.processes)}"]
    told += [f"<code>{label}</code>: {_rich(LABELS[label])}" for label in metric.labels]
    return "".join(f" <small>{one}</small>" for one in told)


def _paragraphs(texts: Iterable[str]) -> str:
    return "\n".join(f"  <p>{_rich(text)}</p>" for text in texts)


def _rich(text: str) -> str:
    """Return ``text`` as HTML, with text between backticks as code."""
    parts = html.escape(text, quote=False).split("`")
    return "".join(f"<code>{part}</code>" if n % 2 else part for n, part in enumerate(parts))


def _by_kind(metrics: Sequence[Metric]) -> Iterator[tuple[str, list[Metric]]]:
    ordered = sorted(metrics, key=lambda metric: (_title(metric.kind), metric.name))
    for kind, group in groupby(ordered, key=lambda metric: metric.kind):
        yield kind, list(group)


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
<!-- Written by `make metrics` from the code. -->
<header class="masthead">
  <p class="brand"><a href="/board">newsfabric</a> <span>Metrics</span></p>
</header>
<main class="metrics">
  <h1>Metrics</h1>
  <p>{intro}</p>
{more}
{body}
</main>
</body>
</html>
"""
