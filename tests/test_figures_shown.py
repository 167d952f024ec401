"""Figures that the board knows by name are reported by processes."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

import pytest

import retail.agent
import shovels.keeper
from gateway.process import measures
from newsfabric.kinds import CORE
from newsfabric.messages.reports import CERTIFICATE_ENDS, MAX_FIGURES
from newsfabric.metrics import REGISTRY
from newsfabric.process.figures import ProcessFigures, Wanted
from newsfabric.tls import CERTIFICATES_END
from wholesale.frontdesk import service
from wholesale.frontdesk.board import plots, region_page
from wholesale.router import counters as router

REPORTED = {
    "gateway": measures.FIGURES,
    "agent": retail.agent.FIGURES,
    "keeper": shovels.keeper.FIGURES,
    "frontdesk": service.FIGURES,
}
# Another service declares them beside its metrics.
REPORTED |= {
    kind: importlib.import_module(f"wholesale.{kind}.counters").FIGURES
    for kind in CORE
    if kind not in REPORTED
}


def _named(wanted: Sequence[Wanted]) -> set[str]:
    return {one.family.removeprefix("newsfabric_") for one in wanted}


@pytest.mark.parametrize("kind", REPORTED)
def test_every_figure_is_of_a_metric_that_is_there(kind: str):
    known = {family.name for family in REGISTRY.collect()}
    assert {one.family for one in REPORTED[kind]} <= known


@pytest.mark.parametrize("kind", REPORTED)
def test_figures_fit_into_a_report(kind: str):
    figures = ProcessFigures(REPORTED[kind])
    figures.read(0.0)
    assert len(figures.read(1.0)) <= MAX_FIGURES


def test_what_the_board_shows_of_boxes_they_report():
    shown = {region_page.PUBLICATIONS, region_page.DELAY, plots.HOLES, plots.REPAIRED}
    assert shown | {"gateway_closes", "gateway_readers"} <= _named(measures.FIGURES)


def test_what_the_board_shows_of_routers_they_report():
    shown = {region_page.ROUTED.removesuffix(".route"), plots.STORE_P99.removesuffix(".p99")}
    assert shown <= _named(router.FIGURES)


@pytest.mark.parametrize("kind", REPORTED)
def test_everybody_reports_when_its_certificates_end(kind: str):
    (ends,) = (one for one in REPORTED[kind] if one.metric is CERTIFICATES_END)
    assert f"{ends.family.removeprefix('newsfabric_')}." == CERTIFICATE_ENDS
    assert ends.label == "use"


def test_a_measured_delay_is_a_figure():
    measures.DELAY.labels("gold", "oregon", "feed").observe(0.003)
    figures = ProcessFigures([Wanted(measures.DELAY)])
    figures.read(0.0)
    measures.DELAY.labels("gold", "oregon", "feed").observe(0.003)
    assert 0.002 < figures.read(1.0)["gateway_delay_seconds.p50"] <= 0.004
