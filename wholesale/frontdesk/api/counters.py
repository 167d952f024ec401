"""The metrics of the frontdesk."""

from __future__ import annotations

from newsfabric import metrics

LOAD_REPORTS = metrics.counter("frontdesk_load_reports", "Load reports, by outcome", ["outcome"])
REPORTS = metrics.counter(
    "frontdesk_reports", "Reports of processes for the board, by outcome", ["outcome"]
)
OWN_REPORTS = metrics.counter(
    "frontdesk_own_reports", "Reports that it sent, by outcome", ["outcome"]
)
BOARD_ASKED = metrics.counter(
    "frontdesk_board_questions", "Requests to other regions' frontdesks", ["outcome"]
)
BOARD_STREAMS = metrics.gauge("frontdesk_board_streams", "Open streams of the board")
BOXES = metrics.gauge("frontdesk_boxes", "Boxes that report, in any state")
ENDPOINTS = metrics.counter(
    "frontdesk_endpoints_answers", "Answers of /endpoints.json", ["gateways"]
)
CATCHING_UP = metrics.counter(
    "frontdesk_catching_up_answers", "Answers of /history?after=, by outcome", ["outcome"]
)
CATCHING_UP_BYTES = metrics.gauge(
    "frontdesk_catching_up_bytes",
    "Bytes of gateways' unfinished answers to /history?after=",
)
PUBLISHED = metrics.counter("frontdesk_publish_answers", "Answers of /publish", ["status"])
PUBLISH_SECONDS = metrics.histogram("frontdesk_publish", "Time from request to receipt")

REPORT_TAKEN = LOAD_REPORTS.labels("taken")
REPORT_IGNORED = LOAD_REPORTS.labels("ignored")
REPORT_BAD = LOAD_REPORTS.labels("bad")
REPORT_FORGED = LOAD_REPORTS.labels("forged")
REPORT_MISPLACED = LOAD_REPORTS.labels("misplaced")
SEEN_TAKEN = REPORTS.labels("taken")
SEEN_IGNORED = REPORTS.labels("ignored")
SEEN_BAD = REPORTS.labels("bad")
SEEN_FORGED = REPORTS.labels("forged")
BOARD_ANSWERED = BOARD_ASKED.labels("answered")
BOARD_UNANSWERED = BOARD_ASKED.labels("unanswered")
CATCHING_UP_ANSWERED = CATCHING_UP.labels("answered")
CATCHING_UP_LEFT = CATCHING_UP.labels("left")
CATCHING_UP.labels("busy")
CATCHING_UP.labels("unavailable")
WITH_GATEWAYS = ENDPOINTS.labels("some")
WITHOUT_GATEWAYS = ENDPOINTS.labels("none")
