"""The catalogue of metrics as docs/metrics.md. Pure.

``scripts/metrics`` writes it, and a test fails when it is outdated. A frontdesk makes its page of
metrics of it (:mod:`wholesale.frontdesk.pages.metrics_page`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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


def _by_kind(metrics: Sequence[Metric]) -> Iterator[tuple[str, list[Metric]]]:
    ordered = sorted(metrics, key=lambda metric: (_title(metric.kind), metric.name))
    for kind, group in groupby(ordered, key=lambda metric: metric.kind):
        yield kind, list(group)
