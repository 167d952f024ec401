"""deploy/terraform/cost.py: the sums of the monthly costs."""

from __future__ import annotations

import copy
import importlib.util
import json
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner

from wholesale.scaler.capacity import capacity_for
from wholesale.scaler.plan import ScalingPlan

ROOT = Path(__file__).resolve().parents[2]
TREE = ROOT / "deploy" / "terraform"
PRICES: dict[str, Any] = tomllib.loads((TREE / "prices.toml").read_text())


def loaded() -> ModuleType:
    spec = importlib.util.spec_from_file_location("terraform_cost", TREE / "cost.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look up their module.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


cost = loaded()


def test_the_tables_in_the_readme_are_what_the_program_says() -> None:
    text = (TREE / "README.md").read_text()
    old = "it is old: .venv/bin/python deploy/terraform/cost.py --write"
    assert cost.with_tables(text, PRICES) == text, old


def test_what_a_box_takes_is_what_was_measured() -> None:
    page = (ROOT / "docs" / "performance.md").read_text()
    box = PRICES["box"]
    assert f"one message at a time | {box['delivery_us']} µs |" in page
    assert f"heartbeats every 25 s, per reader and second | {box['idle_us']} µs |" in page
    assert f"logged in, all on one topic | {box['login_bytes']} B |" in page


def test_the_three_sizes_are_there_with_and_without_a_balancer() -> None:
    found = cost.months(PRICES)
    assert [(each.readers, each.edge) for each in found] == [
        (readers, edge) for readers in (50_000, 500_000, 5_000_000) for edge in ("direct", "nlb")
    ]


def test_boxes_are_as_many_as_newsfabric_capacity_says() -> None:
    plan = ScalingPlan(per_box=100_000, zones=3, least=3, most=1000)
    found = capacity_for(2_500_000, 0, 1800, plan)
    month = cost.month(PRICES["size"][2], "direct", PRICES)
    assert month.boxes_at_peak == max(found.before.boxes, found.after.boxes)


def test_a_balancer_halves_what_a_box_carries_so_there_are_twice_as_many() -> None:
    direct, balanced = (cost.month(PRICES["size"][2], edge, PRICES) for edge in ("direct", "nlb"))
    assert balanced.costs["boxes"] == pytest.approx(2 * direct.costs["boxes"], rel=0.1)


def test_each_terabyte_is_paid_for_at_its_tiers_price() -> None:
    tiers = [{"up_to_tb": 10, "gb": 0.09}, {"up_to_tb": 50, "gb": 0.08}, {"gb": 0.05}]
    assert cost.tiered(5_000, tiers) == pytest.approx(450)
    assert cost.tiered(10_000, tiers) == pytest.approx(900)
    assert cost.tiered(60_000, tiers) == pytest.approx(900 + 40_000 * 0.08 + 10_000 * 0.05)


def test_a_price_is_a_variable() -> None:
    ours = copy.deepcopy(PRICES)
    ours["machine_hour"]["c7i.xlarge"] *= 2
    before, after = (cost.month(PRICES["size"][1], "direct", each) for each in (PRICES, ours))
    more = 2 * before.boxes_on_average * PRICES["machine_hour"]["c7i.xlarge"] * 730
    assert after.total - before.total == pytest.approx(more)


def test_cores_are_deliveries_and_idling() -> None:
    box = {"delivery_us": 10.0, "idle_us": 1.0, "cores": 4}
    assert cost.cores_busy(100_000, 2.0, box) == pytest.approx(2.1)
    assert cost.fan_out_seconds(100_000, box) == pytest.approx(0.25)


def test_it_says_the_same_as_json() -> None:
    done = CliRunner().invoke(cost.main, ["--json"])
    assert done.exit_code == 0, done.output
    documents = json.loads(done.output)
    assert [each["total"] for each in documents] == [each.total for each in cost.months(PRICES)]
    assert all(sum(each["costs"].values()) == pytest.approx(each["total"]) for each in documents)
