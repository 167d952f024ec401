"""What a scaler counts."""

from __future__ import annotations

from newsfabric import metrics

LOAD_REPORTS = metrics.counter(
    "scaler_load_reports", "Load reports, by what came of them.", ["outcome"]
)
WANTED = metrics.gauge("scaler_wanted_boxes", "Boxes that shall serve.")
SUPPLY = metrics.gauge("scaler_supply_boxes", "Boxes that serve or are about to.")
BOXES = metrics.gauge("scaler_boxes", "Boxes, by what the scaler takes them for.", ["kind"])
READERS = metrics.gauge("scaler_readers", "Readers on boxes that report.")
MISSING = metrics.gauge("scaler_missing_readers", "Readers of silent boxes, not back yet.")
GROWTH = metrics.gauge("scaler_growth_readers_per_second", "More readers each second.")
LIMITED = metrics.gauge("scaler_limited", "1 while more boxes are needed than there may be.")
DRAINS = metrics.counter("scaler_drains", "Orders to drain that were sent.", ["outcome"])
DRIVER = metrics.counter("scaler_driver_calls", "What a driver was asked.", ["action", "outcome"])
DRIVER_WELL = metrics.gauge("scaler_driver_well", "1 while the driver does what it is told.")
DECIDE_SECONDS = metrics.histogram("scaler_decide", "One decision.")

REPORT_TAKEN = LOAD_REPORTS.labels("taken")
REPORT_IGNORED = LOAD_REPORTS.labels("ignored")
REPORT_BAD = LOAD_REPORTS.labels("bad")
REPORT_FORGED = LOAD_REPORTS.labels("forged")
