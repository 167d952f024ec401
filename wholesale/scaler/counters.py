"""The metrics of a scaler."""

from __future__ import annotations

from typing import Final

from newsfabric import metrics
from newsfabric.amqp.spread import SKIPPED
from newsfabric.process.figures import Wanted
from newsfabric.tls import CERTIFICATES_END

LOAD_REPORTS = metrics.counter("scaler_load_reports", "Load reports, by outcome", ["outcome"])
WANTED = metrics.gauge("scaler_wanted_boxes", "Boxes that should serve")
SUPPLY = metrics.gauge("scaler_supply_boxes", "Boxes that serve or are about to")
BOXES = metrics.gauge("scaler_boxes", "Boxes, by the scaler's view of their state", ["kind"])
READERS = metrics.gauge("scaler_readers", "Readers on boxes that report")
MISSING = metrics.gauge("scaler_missing_readers", "Readers of silent boxes, not back yet")
GROWTH = metrics.gauge("scaler_growth_readers", "Growth of readers each second")
REFUSED = metrics.gauge("scaler_refused_boxes", "Boxes that are needed beyond the maximum")
DRAINS = metrics.counter("scaler_drains", "Orders to drain that were sent", ["outcome"])
DRIVER = metrics.counter("scaler_driver_calls", "Calls of a driver", ["action", "outcome"])
DRIVER_WELL = metrics.gauge("scaler_driver_ready", "1 while the driver works")
DECIDE_SECONDS = metrics.histogram("scaler_decision", "Time of one decision")

REPORTS = metrics.counter("scaler_reports", "Reports to frontdesks, by outcome", ["outcome"])

REPORT_TAKEN = LOAD_REPORTS.labels("taken")
REPORT_IGNORED = LOAD_REPORTS.labels("ignored")
REPORT_BAD = LOAD_REPORTS.labels("bad")
REPORT_FORGED = LOAD_REPORTS.labels("forged")

# The figures of a scaler that the operations board shows.
FIGURES: Final = (
    Wanted(WANTED),
    Wanted(SUPPLY),
    Wanted(BOXES, "kind"),
    Wanted(READERS),
    Wanted(MISSING),
    Wanted(GROWTH),
    Wanted(REFUSED),
    Wanted(DRAINS, "outcome"),
    Wanted(DRIVER, "outcome"),
    Wanted(DRIVER_WELL),
    Wanted(LOAD_REPORTS, "outcome"),
    Wanted(DECIDE_SECONDS),
    Wanted(SKIPPED, "node"),
    Wanted(CERTIFICATES_END, "use"),
)
