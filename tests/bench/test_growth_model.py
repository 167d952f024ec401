"""The predictions of a report of growth for larger fabrics, checked by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from bench.growth import model
from bench.growth.rate import kept

PARTS: dict[str, list[model.Step]] = {
    # µs of a delivery, × floor, … of the control plane; a reader's µs a second, and bytes.
    "readers": [(1_000, (4.0, 1.0, 0.1, 1.5, 170.0)), (3_000, (6.0, 1.2, 0.1, 0.75, 110.0))],
    # µs of a subscription, of a reader that arrives, of a message (control, data); deliveries.
    "topics": [(1, (80.0, 30.0, 50.0, 9_000.0, 1_000.0)), (100, (90.0, 30.0, 60.0, 44.0, 1.0))],
    # Sent, routed, and the shares of a core router, broker, store, publisher.
    "rate-cassandra": [
        (500, (500.0, 499.0, 0.1, 0.1, 0.1, 0.1)),
        (4_000, (4_000.0, 3_100.0, 1.0, 0.5, 0.5, 0.3)),
    ],
    # All, core nodes, routers, each box.
    "boxes": [(1, (9.0, 1_000.0, 300.0, 700.0)), (4, (9.0, 1_300.0, 320.0, 720.0))],
    # All, the first, its core nodes, each other region.
    "regions": [
        (1, (3_000.0, 3_000.0, 1_000.0, 0.0)),
        (2, (5_500.0, 3_500.0, 1_000.0, 2_000.0)),
        (3, (8_000.0, 4_000.0, 1_000.0, 2_000.0)),
    ],
    "mixed-box": [(2_000, (10.0, 20.0, 0.03))],
    "mixed-world": [(3, (2.0, 10_000.0))],
}


def report(parts: dict[str, list[model.Step]] = PARTS) -> dict[str, Any]:
    return {
        "parts": {
            name: {
                "rows": [
                    {"size": size, **{f"c{n}": value for n, value in enumerate(values)}}
                    for size, values in steps
                ]
            }
            for name, steps in parts.items()
        }
    }


MODEL = model.Model.of(PARTS)


def test_a_line_goes_through_its_points() -> None:
    assert model.GrowthLine.through([(1, 1_000), (4, 1_300)]) == model.GrowthLine(900, 100)
    assert model.GrowthLine(900, 100).at(40) == 4_900


def test_a_line_is_written_with_its_sign() -> None:
    assert model.GrowthLine(1_200, 0.4).written("µs", "reader", digits=2) == (
        "1,200 µs + 0.40 µs for each reader"
    )
    assert (
        model.GrowthLine(4_286, -48.2).written("µs", "region") == "4,286 µs - 48 µs for each region"
    )


@pytest.mark.parametrize(
    ("readers", "us"), [(100, 4.0), (1_000, 4.0), (2_000, 5.0), (3_000, 6.0), (50_000, 6.0)]
)
def test_a_delivery_is_on_the_line_between_two_sizes_and_like_the_last_one_beyond(
    readers: int, us: float
) -> None:
    assert MODEL.delivery_at(readers) == us


def test_a_gateway_takes_what_its_readers_messages_and_deliveries_take() -> None:
    # A message takes 60 + 44 µs, with one delivery of 4.
    assert MODEL.arrival == 100
    # All readers wait for 1,125 µs a second and 0.375 each; 20 messages of 100 µs; 4,000 deliveries
    # of 5 µs.
    assert MODEL.gateway(2_000, 20, 4_000) == pytest.approx(0.001125 + 0.00075 + 0.002 + 0.02)


def test_a_world_takes_what_its_regions_and_further_boxes_take() -> None:
    # 4,000 in the first of three regions, 2,000 in each other; three more boxes, each 100 in its
    # core and 710 of its own.
    assert MODEL.world(3, 2) == pytest.approx(4_000 + 2 * 2_000 + 3 * (100 + 710))


def test_what_core_nodes_and_a_box_carry() -> None:
    assert MODEL.core_most(40, 12) == pytest.approx(12 * 0.7 * 1e6 / 4_900)
    # 2.8 of four cores, less 2,250 µs for 3,000 readers; a message to all is 100 + 18,000 µs.
    assert MODEL.all_most(3_000) == pytest.approx((2_800_000 - 2_250) / 18_100)
    assert MODEL.router_most == 499


def test_nothing_was_kept_up_with_if_the_first_rate_wasnt() -> None:
    assert kept(PARTS["rate-cassandra"][1:]) == 0


def test_what_was_not_fitted_is_foretold_beside_what_was_measured() -> None:
    text = model.predictions(MODEL, PARTS)
    assert "4,000 deliveries a second: cores | 0.024 | 0.030 | -20% |" in text
    assert "3 regions of 2 boxes, a message: µs of all programs | 10,430 | 10,000 | +4% |" in text


def test_sizes_go_to_five_million_readers() -> None:
    last = model.sizes(MODEL).splitlines()[-1]
    # 38 boxes a region as in deploy/terraform's table: 90,000 bytes, and 4,480 for each of 65,790
    # readers; the core's 4,700 µs for each of 50 messages a second.
    assert last == "| 5,000,000 | 38 | 65,790 | 295 MB | 0.23 of 24 | 499 | 3,574 | 7.0 |"


def test_tables_go_between_the_marks_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text(json.dumps(report()), "utf-8")
    page = tmp_path / "page.md"
    page.write_text(f"before\n{model.BEGIN}old\n{model.END}after\n", "utf-8")
    for _ in range(2):
        done = CliRunner().invoke(model.main, [str(tmp_path), "--write", str(page)])
        assert done.exit_code == 0, done.output
        text = page.read_text("utf-8")
        assert text.startswith(f"before\n{model.BEGIN}\n| what | processor time or memory |")
        assert text.endswith(f"| 7.0 |\n\n{model.END}after\n")
    page.write_text("no marks", "utf-8")
    done = CliRunner().invoke(model.main, [str(tmp_path), "--write", str(page)])
    assert done.exit_code == 1
    assert "Error: there is no <!-- bench.growth.model --write" in done.output
    assert page.read_text("utf-8") == "no marks"


def test_a_report_that_lacks_a_part_is_refused(tmp_path: Path) -> None:
    lacking = report()
    lacking["parts"]["boxes"] = {"not_measured": "no RabbitMQ"}
    del lacking["parts"]["topics"]
    (tmp_path / "report.json").write_text(json.dumps(lacking), "utf-8")
    done = CliRunner().invoke(model.main, [str(tmp_path)])
    assert done.exit_code == 1
    assert "the report lacks topics, boxes: measure all parts" in done.output
