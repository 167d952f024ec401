"""A dashboard as values, and the JSON that Grafana imports.

Plots are laid out in rows, in their order; labels to choose by become variables. The list of
dashboards is in :mod:`observability.dashboards`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Final

# Of Grafana's grid, which has 24 columns.
_WIDTH, _HEIGHT = 8, 8
_DATASOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}


@dataclasses.dataclass(frozen=True, slots=True)
class Query:
    """An expression, and the names of its series (labels in double braces).

    A ``rare`` query has no result while nothing is wrong.
    """

    expression: str
    legend: str
    rare: bool = False
    exemplars: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Panel:
    """A plot. ``unit`` is Grafana's name of the unit."""

    title: str
    unit: str
    queries: tuple[Query, ...]
    about: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Dashboard:
    """A page. ``by`` are labels to choose by; each is a variable of that name."""

    uid: str
    title: str
    question: str
    by: tuple[str, ...]
    panels: tuple[Panel, ...]


def json_of(dashboard: Dashboard) -> dict[str, Any]:
    """Return the document that Grafana imports (schema 39, Grafana 10 or later)."""
    return {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "description": dashboard.question,
        "tags": ["newsfabric"],
        "schemaVersion": 39,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "15s",
        "time": {"from": "now-1h", "to": "now"},
        "links": [
            {
                "type": "dashboards",
                "title": "newsfabric",
                "tags": ["newsfabric"],
                "tooltip": "",
                "icon": "",
                "asDropdown": True,
                "includeVars": True,
                "keepTime": True,
                "targetBlank": False,
            }
        ],
        "templating": {"list": _variables(dashboard.by)},
        "panels": [_plot(number, panel) for number, panel in enumerate(dashboard.panels)],
    }


def _variables(by: Sequence[str]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}
    ]
    for label in by:
        of = (
            'up{job="newsfabric",region=~"$region"}'
            if label != "region"
            else 'up{job="newsfabric"}'
        )
        found.append(
            {
                "name": label,
                "label": label.capitalize(),
                "type": "query",
                "datasource": _DATASOURCE,
                "query": {"query": f"label_values({of}, {label})", "refId": label},
                "refresh": 2,
                "includeAll": True,
                "allValue": ".+",
                "multi": True,
                "current": {"text": "All", "value": "$__all"},
            }
        )
    return found


def _plot(number: int, panel: Panel) -> dict[str, Any]:
    columns = 24 // _WIDTH
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.about,
        "datasource": _DATASOURCE,
        "gridPos": {
            "x": number % columns * _WIDTH,
            "y": number // columns * _HEIGHT,
            "w": _WIDTH,
            "h": _HEIGHT,
        },
        "fieldConfig": {
            "defaults": {"unit": panel.unit, "min": 0, "custom": {"fillOpacity": 8}},
            "overrides": [],
        },
        "options": {
            "legend": {
                "showLegend": True,
                "displayMode": "list",
                "placement": "bottom",
                "calcs": [],
            },
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "datasource": _DATASOURCE,
                "expr": query.expression,
                "legendFormat": query.legend,
                "exemplar": query.exemplars,
            }
            for index, query in enumerate(panel.queries)
        ],
    }


def asked(query: Query) -> str:
    """Return the expression as Grafana sends it, with all chosen and an interval of a minute."""
    found = query.expression.replace("$__rate_interval", "1m")
    return found.replace("$region", ".+").replace("$box", ".+")


def file_name(dashboard: Dashboard) -> str:
    """Return the name of the dashboard's file."""
    return f"{dashboard.uid.removeprefix('newsfabric-')}.json"
