"""deploy/observability: rules that Prometheus accepts, alerts that fire, a runbook for each."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from observability import grafana
from observability.catalogue import declared_in_tree
from observability.dashboards import DASHBOARDS
from prometheus import OBSERVABILITY, ROOT, alerts, program, rules

RUNBOOK = (ROOT / "docs" / "runbook.md").read_text()
SECTIONS = dict(re.findall(r"^### (\w+)\n\n(.*?)(?=^##|\Z)", RUNBOOK, re.MULTILINE | re.DOTALL))
ALERTS = alerts()
#: Tests that make alerts' faults in a world.
MAKERS = ("a_prometheus_watches", "each_alert_fires")
ALERTS_TEST = (OBSERVABILITY / "tests" / "alerts_test.yml").read_text()
CASES: list[dict[str, Any]] = yaml.safe_load(ALERTS_TEST)["tests"]
# The names that samples of a metric may have.
NAMES = {
    name
    for metric in declared_in_tree(ROOT)
    for name in (
        [f"{metric.name}_{part}" for part in ("bucket", "count", "sum")]
        if metric.type == "histogram"
        else [metric.full_name]
    )
}


def promtool(*arguments: str | Path) -> None:
    done = subprocess.run(
        [program("promtool"), *map(str, arguments)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", ["prometheus.world.yml", "prometheus.machines.yml"])
def test_prometheus_takes_the_configuration(name: str) -> None:
    promtool("check", "config", OBSERVABILITY / name)


def test_prometheus_takes_the_rules() -> None:
    promtool("check", "rules", *sorted((OBSERVABILITY / "rules").glob("*.yml")))


def test_alerts_fire_when_they_should_and_else_not() -> None:
    promtool("test", "rules", OBSERVABILITY / "tests" / "alerts_test.yml")


@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_has_a_case_in_which_it_fires_and_one_in_which_it_doesnt(alert: str) -> None:
    found = [
        bool(check["exp_alerts"])
        for case in CASES
        for check in case["alert_rule_test"]
        if check["alertname"] == alert
    ]
    assert set(found) == {True, False}


@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_has_a_runbook_and_says_where_it_is(alert: str) -> None:
    rule = ALERTS[alert]
    text = SECTIONS[alert]
    assert rule["annotations"]["runbook_url"] == f"docs/runbook.md#{alert.lower()}"
    assert text.startswith(f"*{rule['labels']['severity']}* · ")
    assert re.search(r"^- \*\*Look at\*\*: \S", text, re.MULTILINE)
    assert re.search(r"^- \*\*Do\*\*: \S", text, re.MULTILINE)


def test_there_is_no_runbook_for_what_is_no_alert() -> None:
    assert set(SECTIONS) == set(ALERTS)


def test_each_alerts_fault_is_really_made_or_the_reason_against_it_is_stated() -> None:
    tests = [ROOT / "tests" / "e2e" / f"test_{name}.py" for name in MAKERS]
    made = {alert for test in tests for alert in _awaited(test.read_text())}
    pattern = r"- name: '(\w+): .*\n +# Not made in a world: \S.*\.\s(?: +# )?(tests/\S+\.py) sees "
    not_made = dict(re.findall(pattern, ALERTS_TEST))
    assert made | not_made.keys() == set(ALERTS)
    assert made & not_made.keys() == set()
    assert [test for test in not_made.values() if not (ROOT / test).is_file()] == []


def _awaited(source: str) -> set[str]:
    """Return the alerts that tests wait for: the second argument of ``_fires`` and its like."""
    return {
        str(call.args[1].value)
        for call in ast.walk(ast.parse(source))
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Name)
        and call.func.id in ("_fires", "_firing", "_alerts")
        and isinstance(call.args[1], ast.Constant)
    }


def test_what_an_alert_counts_is_there_from_the_start() -> None:
    """For Prometheus, a series that begins with 1 has not increased."""
    show = "from gateway.process.measures import metrics; print(metrics.exposition()[0].decode())"
    shown = subprocess.run(
        [sys.executable, "-c", show], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    for sample in (
        'rejected_connects_total{reason="capacity"}',
        'closes_total{reason="slow_reader"}',
        'closes_total{reason="lost"}',
        'closes_total{reason="no_pong"}',
    ):
        assert f"newsfabric_gateway_{sample} 0.0" in shown


def _texts() -> dict[str, str]:
    files = [*OBSERVABILITY.rglob("*.yml"), ROOT / "docs/runbook.md"]
    made = {grafana.file_name(one): json.dumps(grafana.json_of(one)) for one in DASHBOARDS}
    return {str(file.relative_to(ROOT)): file.read_text() for file in files} | made


@pytest.mark.parametrize(("file", "text"), _texts().items(), ids=_texts())
def test_every_metric_that_is_named_is_one_of_ours(file: str, text: str) -> None:
    recorded = {
        rule["record"] for group in rules("recording.yml")["groups"] for rule in group["rules"]
    }
    named = set(re.findall(r"[\w:]*newsfabric_[a-z_]+[\w:]*", text))
    families = NAMES if file.endswith((".yml", ".json")) else NAMES | _families()
    assert named - families - recorded == set()


def _families() -> set[str]:
    return {metric.name for metric in declared_in_tree(ROOT)}


def test_there_is_a_dashboard_for_each_question() -> None:
    wanted = {"fleet", "region", "box", "message-path", "races", "shovels", "store"}
    assert wanted == {Path(grafana.file_name(one)).stem for one in DASHBOARDS}


def test_dashboards_are_written_for_grafana_and_for_ansible(tmp_path: Path) -> None:
    made = {grafana.file_name(one): grafana.json_of(one) for one in DASHBOARDS}
    command = [sys.executable, "-m", "observability.dashboards"]
    options = {"cwd": OBSERVABILITY.parent, "check": True}
    subprocess.run([*command, str(tmp_path)], **options)
    assert {file.name: json.loads(file.read_text()) for file in tmp_path.iterdir()} == made
    assert json.loads(subprocess.run(command, capture_output=True, **options).stdout) == made


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda one: one.uid)
def test_a_dashboard_asks_only_for_labels_that_can_be_chosen(dashboard: Any) -> None:
    text = json.dumps(grafana.json_of(dashboard))
    chosen = set(re.findall(r"\$(region|box)\b", text)) - {
        "region" if "box" in dashboard.by else ""
    }
    assert chosen <= set(dashboard.by)
    titles = [panel.title for panel in dashboard.panels]
    assert len(set(titles)) == len(titles)
