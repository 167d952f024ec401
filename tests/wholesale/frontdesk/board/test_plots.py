"""The last hour as points of five seconds."""

from __future__ import annotations

import dataclasses

from pictures import BOX, LOAD, ROUTER, PlayedPicture

from wholesale.frontdesk.board.plots import MAX_REGIONS, POINTS, Plots, point_of

GATEWAY = {
    "gateway_holes_open": 2.0,
    "gateway_recovered_messages": 0.5,
    "gateway_closes.slow_reader": 1.5,
}
ROUTING = {"router_store_write_seconds.p99": 0.004, "router_stage_left_messages.route": 3.0}


def test_a_point_is_what_the_region_shows():
    played = PlayedPicture()
    boxes = [dataclasses.replace(BOX, name=f"b-{n}", figures=GATEWAY) for n in (1, 2)]
    played.pass_by(1, *boxes, LOAD, dataclasses.replace(ROUTER, figures=ROUTING))
    assert point_of(played.region()) == {
        "readers": 30,
        "messages_per_second": 3.0,
        "deliveries_per_second": 60.0,
        "delay_p50_ms": None,
        "delay_p99_ms": None,
        "connects_per_second": 2.0,
        "holes_open": 4.0,
        "repaired_per_second": 1.0,
        "store_p99_ms": 4.0,
        "closes.slow_reader": 3.0,
    }


def test_of_a_region_without_boxes_little_is_known():
    point = point_of(PlayedPicture().region())
    assert point["readers"] == 0
    assert point["holes_open"] is None
    assert point["store_p99_ms"] is None


def test_while_nobody_is_heard_there_is_a_gap():
    played = PlayedPicture()
    played.pass_by(6, BOX, LOAD, ROUTER)
    played.core = False
    played.pass_by(4)
    assert point_of(played.region())["readers"] == 30
    played.pass_by(1)
    assert point_of(played.region()) == {}


def test_series_are_as_long_as_their_times():
    plots = Plots()
    plots.add("oregon", {"readers": 1.0}, 0.0)
    plots.add("oregon", {}, 5.0)
    plots.add("oregon", {"readers": 3.0, "holes_open": 0.0, "closes.drain": 2.0}, 10.0)
    assert plots.plots_document(10.0, 100_000) == {
        "every_ms": 5000,
        "regions": {
            "oregon": {
                "at_ms": [90_000, 95_000, 100_000],
                "series": {
                    "readers": [1.0, None, 3.0],
                    "holes_open": [None, None, 0.0],
                    # A known region in which nothing was closed for that reason has 0.
                    "closes.drain": [0.0, None, 2.0],
                },
            }
        },
    }


def test_only_an_hour_is_kept_and_only_so_many_regions():
    plots = Plots()
    for n in range(POINTS + 10):
        plots.add("oregon", {"readers": float(n)}, 5.0 * n)
    for n in range(2 * MAX_REGIONS):
        plots.add(f"r-{n}", {}, 0.0)
    regions = plots.plots_document(0.0, 0)["regions"]
    assert len(regions) == MAX_REGIONS
    assert len(regions["oregon"]["at_ms"]) == POINTS
    assert regions["oregon"]["series"]["readers"][0] == 10.0
