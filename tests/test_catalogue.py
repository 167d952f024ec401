"""The naming scheme of metrics, checked on all that the code declares."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest
from observability.catalogue import (
    LABELS,
    PACKAGES,
    Metric,
    Undeclarable,
    breaches,
    declared,
    declared_in_tree,
)
from observability.catalogue_page import markdown

from wholesale.frontdesk.pages.metrics_page import metrics_file, page

ROOT = Path(__file__).parent.parent


def _sources() -> dict[str, str]:
    files = (file for package in PACKAGES for file in sorted((ROOT / package).rglob("*.py")))
    return {str(file.relative_to(ROOT)): file.read_text() for file in files}


SOURCES = _sources()
METRICS = [metric for path, source in SOURCES.items() for metric in declared(path, source)]


def _counter(name: str = "router_messages", **fields: object) -> Metric:
    found = {
        "name": f"newsfabric_{name}",
        "type": "counter",
        "labels": (),
        "meaning": "Messages",
        "declared_in": "here.py",
    }
    return Metric(**found | fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.full_name)
def test_every_metric_keeps_the_naming_scheme(metric: Metric) -> None:
    assert list(breaches(metric)) == []


def test_every_service_declares_some() -> None:
    assert {"router", "mailbox", "frontdesk", "shovels", "retail", "gateway"} <= {
        metric.kind for metric in METRICS
    }


def test_no_name_is_declared_twice() -> None:
    assert [name for name, count in Counter(m.name for m in METRICS).items() if count > 1] == []


def test_every_label_of_the_list_is_used() -> None:
    assert {label for metric in METRICS for label in metric.labels} == set(LABELS)


def test_metrics_are_made_in_one_place_only() -> None:
    makers = {"Counter", "Gauge", "Histogram", "Summary", "Info", "Enum"}
    makes = [
        f"{path}:{node.lineno}"
        for path, source in SOURCES.items()
        if "prometheus_client" in source and path != "newsfabric/metrics/__init__.py"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in makers
    ]
    assert makes == []


@pytest.mark.parametrize(
    ("metric", "breach"),
    [
        (_counter("kitchen_messages"), "kitchen is no kind of process"),
        (_counter("router"), "two at least"),
        (_counter("router_Messages"), "small words"),
        (_counter("router_rejected"), "rejected isn't the counted thing"),
        (_counter("router_messages_total"), "Prometheus itself puts _total"),
        (_counter("router_wait_ms"), "units are seconds and bytes"),
        (_counter("router_waiting", type="gauge"), "neither a unit nor a plural"),
        (_counter(labels=("topic",)), "label topic isn't in LABELS"),
        (_counter(meaning=""), "without a meaning"),
    ],
)
def test_what_breaks_the_scheme_is_reported(metric: Metric, breach: str) -> None:
    assert [line for line in breaches(metric) if breach in line]


def test_a_declaration_is_read_as_it_is_written() -> None:
    source = (
        "from newsfabric import metrics\n"
        'A = metrics.counter("router_messages", "Messages", ["stage"])\n'
        'B = metrics.histogram("router_pass", help="How long")\n'
    )
    first, second = declared("a.py", source)
    assert (first.full_name, first.labels) == ("newsfabric_router_messages_total", ("stage",))
    assert (second.full_name, second.unit) == ("newsfabric_router_pass_seconds", "seconds")
    assert second.processes == ("router",)


def test_what_is_not_a_literal_is_refused() -> None:
    with pytest.raises(Undeclarable, match=r"a\.py:1"):
        list(declared("a.py", 'metrics.counter("router_" + name, "Messages")'))


def test_the_page_is_that_of_the_code() -> None:
    made = markdown(declared_in_tree(ROOT))
    assert (ROOT / "docs" / "metrics.md").read_text() == made, "it is old: make metrics"


def test_every_metric_has_an_anchor_by_its_familys_name() -> None:
    text = page(markdown([_counter("router_messages", meaning="<b> `x`", labels=("stage",))]))
    assert '<div id="newsfabric_router_messages">' in text
    assert "<code>newsfabric_router_messages_total</code>" in text
    assert "&lt;b&gt; <code>x</code>." in text
    assert "<small><code>stage</code>: a stage of the router</small>" in text


def test_the_page_has_every_metric() -> None:
    shown = re.findall(r'<div id="(\w+)">', page(metrics_file().read_text()))
    assert sorted(shown) == sorted(metric.name for metric in METRICS)


def test_links_between_documents_lead_to_metrics_that_are() -> None:
    names = {metric.name for metric in METRICS} | {metric.full_name for metric in METRICS}
    texts = [
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "wholesale/frontdesk/pages/files").glob("board*"),
    ]
    texts = [text for text in texts if "reports" not in text.parts]
    named = {
        (file.name, name.removesuffix("_bucket").removesuffix("_count").removesuffix("_sum"))
        for file in texts
        for name in re.findall(r"(?<![:\w])newsfabric_[a-z_]+[a-z]", file.read_text())
    }
    # The key of a browser's storage, and a figure of the board.
    allowed = {"newsfabric_board_theme", "newsfabric_router_store_write_seconds"}
    # Settings of Ansible's roles have such names, too.
    ansible = [*(ROOT / "deploy/ansible").rglob("*.yml"), *(ROOT / "deploy/ansible").rglob("*.j2")]
    used = {
        name
        for file in ansible
        if file.is_file()
        for name in re.findall(r"\bnewsfabric_[a-z_]+[a-z]", file.read_text())
    }
    assert {(file, name) for file, name in named if name not in names | allowed | used} == set()
