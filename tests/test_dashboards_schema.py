"""deploy/observability: dashboards that fit the types of two releases of Grafana.

Grafana publishes the types of a dashboard in TypeScript. Each dashboard becomes a constant of that
type, and a compiler finds unknown keys, values that an enumeration lacks, and missing keys. Grafana
isn't run, so the contents of a panel aren't checked.
"""

from __future__ import annotations

import copy
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from observability import grafana
from observability.dashboards import DASHBOARDS
from prometheus import ROOT

MODULES: Final = ROOT / "clients" / "js" / "node_modules"
MADE: Final = {grafana.file_name(one): grafana.json_of(one) for one in DASHBOARDS}
# The paths of each release's types in its package.
RELEASES: Final = {
    "10": {
        "@grafana/schema": "grafana-schema-10/dist/index.d.ts",
        "dashboard": "grafana-schema-10/dist/esm/raw/dashboard/x/dashboard_types.gen.d.ts",
        "timeseries": "grafana-schema-10/dist/esm/raw/composable/timeseries/panelcfg/x/"
        "TimeSeriesPanelCfg_types.gen.d.ts",
    },
    "13": {
        "@grafana/schema": "@grafana/schema/dist/types/index.d.ts",
        "dashboard": "@grafana/schema/dist/types/raw/dashboard/x/types.gen.d.ts",
        "timeseries": "@grafana/schema/dist/types/raw/composable/timeseries/panelcfg/x/"
        "types.gen.d.ts",
    },
}
# Later packages lack the query of a Prometheus.
QUERY: Final = (
    "grafana-schema-10/dist/esm/raw/composable/prometheus/dataquery/x/"
    "PrometheusDataQuery_types.gen.d.ts"
)
# JSON has the values of enumerations, not their names.
TYPES: Final = """
import type { Dashboard, FieldConfig, FieldConfigSource, Panel } from "dashboard";
import type { FieldConfig as Drawing, Options } from "timeseries";
import type { PrometheusDataQuery } from "prometheus";

type Json<T> =
  T extends string ? `${T}` :
  T extends number | boolean | null | undefined ? T :
  T extends (infer Each)[] ? Json<Each>[] :
  T extends object ? { [Key in keyof T]: Json<T[Key]> } :
  T;
type TimeSeries = Omit<Panel, "type" | "options" | "fieldConfig" | "targets"> & {
  type: "timeseries";
  options: Options;
  fieldConfig: Omit<FieldConfigSource, "defaults"> & {
    defaults: Omit<FieldConfig, "custom"> & { custom: Drawing };
  };
  targets: PrometheusDataQuery[];
};
type Checked = Json<Omit<Dashboard, "panels"> & { panels: TimeSeries[] }>;
"""

_COMPLAINT: Final = re.compile(r"dashboards\.ts\((\d+),")
_DECLARED: Final = re.compile(r"export const (\w+):")


def _tsc() -> list[str | Path]:
    """Return the compiler's command; without it skip on a laptop, fail in CI."""
    compiler, node = MODULES / "typescript" / "bin" / "tsc", shutil.which("node")
    places = [compiler, MODULES / QUERY]
    places += [MODULES / path for release in RELEASES.values() for path in release.values()]
    if node is None or not all(place.exists() for place in places):
        missing = "Grafana's types are not installed: scripts/setup javascript"
        if os.environ.get("CI"):
            pytest.fail(f"CI must have them: {missing}")
        pytest.skip(missing)
    return [node, compiler]


def _faults(folder: Path, release: str, dashboards: dict[str, Any]) -> dict[str, str]:
    """Return the compiler's first error about each of ``dashboards`` (by name) that it refuses."""
    constants = [
        f"export const {name}: Checked = {json.dumps(dashboard)};\n"
        for name, dashboard in dashboards.items()
    ]
    (folder / "dashboards.ts").write_text(TYPES + "".join(constants), encoding="utf-8")
    paths = {**RELEASES[release], "prometheus": QUERY}
    options = {
        "target": "es2022",
        "module": "esnext",
        "moduleResolution": "bundler",
        "types": [],
        "strict": True,
        "exactOptionalPropertyTypes": True,
        "skipLibCheck": True,
        "noEmit": True,
        "paths": {name: [str(MODULES / path)] for name, path in paths.items()},
    }
    project = {"compilerOptions": options, "files": ["dashboards.ts"]}
    (folder / "tsconfig.json").write_text(json.dumps(project), encoding="utf-8")
    done = subprocess.run(
        [*_tsc(), "--project", folder, "--pretty", "false"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
    )
    lines = (folder / "dashboards.ts").read_text(encoding="utf-8").splitlines()
    faults = {}
    for complaint in done.stdout.splitlines():
        # Indented lines explain the line above them.
        if not complaint.startswith(" "):
            found = _COMPLAINT.match(complaint)
            assert found is not None, complaint
            declared = _DECLARED.match(lines[int(found[1]) - 1])
            assert declared is not None, complaint
            faults[declared[1]] = complaint
    return faults


def _broken(change: Callable[[Any, Any], object]) -> Any:
    """Return a dashboard changed by ``change``, which gets it and its first panel."""
    dashboard = copy.deepcopy(next(iter(MADE.values())))
    change(dashboard, dashboard["panels"][0])
    return dashboard


@pytest.mark.parametrize("release", list(RELEASES))
def test_grafana_knows_everything_in_the_dashboards_and_finds_mistakes(
    release: str, tmp_path: Path
) -> None:
    ours = {Path(name).stem.replace("-", "_"): dashboard for name, dashboard in MADE.items()}
    assert len(ours) == 7
    broken = {
        "mode": _broken(lambda _, panel: panel["options"]["tooltip"].update(mode="some")),
        "key": _broken(lambda _, panel: panel["fieldConfig"]["defaults"]["custom"].update(fil=8)),
        "query": _broken(lambda _, panel: panel["targets"][0].pop("expr")),
        "place": _broken(lambda _, panel: panel["gridPos"].update(w="8")),
        "variable": _broken(lambda d, _: d["templating"]["list"][0].update(type="datasorce")),
    }
    faults = _faults(tmp_path, release, {**ours, **broken})
    assert {name: fault for name, fault in faults.items() if name in ours} == {}
    assert faults.keys() == broken.keys()
