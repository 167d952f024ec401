"""Grafana's dashboards as values: the queries of each.

    PYTHONPATH=deploy .venv/bin/python -m observability.dashboards FOLDER

writes a file of JSON for each into FOLDER, for Grafana; without it one object with all files is
written to stdout, for Ansible. A test sends every query to a real Prometheus that scrapes a world.
A dashboard answers one question, shown below its title.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Final

from observability.grafana import Dashboard, Panel, Query, file_name, json_of


def _panel(title: str, unit: str, *queries: Query, about: str = "") -> Panel:
    return Panel(title, unit, queries, about)


def _q(expression: str, legend: str, *, rare: bool = False, exemplars: bool = False) -> Query:
    return Query(expression, legend, rare, exemplars)


def _p99(metric: str, by: str, selector: str, share: str = "0.99") -> str:
    rate = f"sum by ({by}, le) (rate({metric}_bucket{{{selector}}}[$__rate_interval]))"
    return f"histogram_quantile({share}, {rate})"


_R: Final = 'region=~"$region"'
_B: Final = 'region=~"$region",box=~"$box"'
_ROUTER: Final = f'process="router",{_R}'

FLEET: Final = Dashboard(
    "newsfabric-fleet",
    "newsfabric: fleet",
    "Does every region serve its readers, and has it free capacity?",
    (),
    (
        _panel("Readers", "short", _q("region:newsfabric_gateway_readers:sum", "{{region}}")),
        _panel(
            "Used capacity",
            "percentunit",
            _q(
                "region:newsfabric_gateway_readers:sum"
                " / region:newsfabric_gateway_capacity_readers:sum",
                "{{region}}",
            ),
            about="Readers as a share of the boxes' capacity. An alert fires at 85 %.",
        ),
        _panel(
            "New connections",
            "cps",
            _q("region:newsfabric_gateway_connects:rate1m", "{{region}}"),
        ),
        _panel(
            "Messages",
            "mps",
            _q("sum by (region) (region:newsfabric_router_messages:rate1m)", "{{region}}"),
        ),
        _panel(
            "Deliveries", "cps", _q("region:newsfabric_gateway_deliveries:rate1m", "{{region}}")
        ),
        _panel(
            "Delay of gold, p99",
            "s",
            _q(
                'region_class_origin:newsfabric_gateway_delay_seconds:p99_5m{class="gold"}',
                "{{origin}} to {{region}}",
            ),
        ),
        _panel(
            "Processes without an answer",
            "short",
            _q('sum by (region) (up{job="newsfabric"} == bool 0)', "{{region}}"),
        ),
        _panel(
            "Processes that aren't ready",
            "short",
            _q("sum by (region) (newsfabric_service_ready == bool 0)", "{{region}}"),
        ),
        _panel(
            "Releases",
            "short",
            _q("count by (version) (newsfabric_service_build_info)", "{{version}}"),
        ),
    ),
)

REGION: Final = Dashboard(
    "newsfabric-region",
    "newsfabric: region",
    "Which box or service of the region differs from the others?",
    ("region",),
    (
        _panel(
            "Readers by box",
            "short",
            _q(f"box:newsfabric_gateway_readers:sum{{{_R}}}", "{{box}}"),
        ),
        _panel(
            "Deliveries by box",
            "cps",
            _q(f"box:newsfabric_gateway_deliveries:rate1m{{{_R}}}", "{{box}}"),
        ),
        _panel(
            "Delay by box, p99",
            "s",
            _q(_p99("newsfabric_gateway_delay_seconds", "box", _R), "{{box}}", exemplars=True),
        ),
        _panel(
            "Closes by reason",
            "cps",
            _q(
                f"sum by (reason) (region_reason:newsfabric_gateway_closes:rate1m{{{_R}}})",
                "{{reason}}",
            ),
        ),
        _panel(
            "Refused connections",
            "cps",
            _q(
                "sum by (reason) (rate(newsfabric_gateway_rejected_connects_total"
                f"{{{_R}}}[$__rate_interval]))",
                "{{reason}}",
            ),
        ),
        _panel(
            "Age of the feed",
            "s",
            _q(f"newsfabric_gateway_feed_age_seconds{{{_R}}}", "{{box}}"),
            about="Since the last tick of the region's routers. Above 10 s a box isn't ready.",
        ),
        _panel("Ready", "short", _q(f"newsfabric_service_ready{{{_R}}}", "{{instance}}")),
        _panel(
            "Processor",
            "percentunit",
            _q(
                f'rate(process_cpu_seconds_total{{job="newsfabric",{_R}}}[$__rate_interval])',
                "{{instance}}",
            ),
            about="The share of one core. For a gateway, this is its control plane alone.",
        ),
        _panel(
            "Memory",
            "bytes",
            _q(f'process_resident_memory_bytes{{job="newsfabric",{_R}}}', "{{instance}}"),
        ),
    ),
)

BOX: Final = Dashboard(
    "newsfabric-box",
    "newsfabric: box",
    "How does this box serve its readers?",
    ("region", "box"),
    (
        _panel(
            "Readers",
            "short",
            _q(f"sum by (box, transport) (newsfabric_gateway_readers{{{_B}}})", "{{transport}}"),
        ),
        _panel(
            "Deliveries",
            "cps",
            _q(
                "sum by (transport) (rate(newsfabric_gateway_deliveries_total"
                f"{{{_B}}}[$__rate_interval]))",
                "{{transport}}",
            ),
            _q(
                f"sum(rate(newsfabric_gateway_held_deliveries_total{{{_B}}}[$__rate_interval]))",
                "held: the socket didn't take them at once",
            ),
        ),
        _panel(
            "Delay",
            "s",
            _q(
                _p99("newsfabric_gateway_delay_seconds", "class", _B, "0.5"),
                "{{class}}, p50",
            ),
            _q(
                _p99("newsfabric_gateway_delay_seconds", "class", _B),
                "{{class}}, p99",
                exemplars=True,
            ),
        ),
        _panel(
            "Time for which a reader's frames waited, p99",
            "s",
            _q(_p99("newsfabric_gateway_reader_behind_seconds", "box", _B), "{{box}}", rare=True),
        ),
        _panel(
            "Verbs",
            "reqps",
            _q(
                f"sum by (action) (rate(newsfabric_gateway_verbs_total{{{_B}}}[$__rate_interval]))",
                "{{action}}",
            ),
        ),
        _panel(
            "Resumes",
            "cps",
            _q(
                "sum by (result, reason) (rate(newsfabric_gateway_resumes_total"
                f"{{{_B}}}[$__rate_interval]))",
                "{{result}} {{reason}}",
                rare=True,
            ),
        ),
        _panel(
            "Closes",
            "cps",
            _q(
                "sum by (reason) (rate(newsfabric_gateway_closes_total"
                f"{{{_B}}}[$__rate_interval]))",
                "{{reason}}",
            ),
        ),
        _panel(
            "Messages dropped for slow readers",
            "cps",
            _q(
                "sum by (policy) (rate(newsfabric_gateway_dropped_messages_total"
                f"{{{_B}}}[$__rate_interval]))",
                "{{policy}}",
            ),
        ),
        _panel(
            "Memory",
            "bytes",
            _q(f"newsfabric_gateway_outbox_bytes{{{_B}}}", "frames that wait for readers"),
            _q(f"newsfabric_gateway_memory_bytes{{{_B}}}", "remembered messages"),
        ),
    ),
)

MESSAGE_PATH: Final = Dashboard(
    "newsfabric-message-path",
    "newsfabric: message path",
    "Where is a message delayed or lost on its way?",
    ("region",),
    (
        _panel(
            "Messages through the router's stages",
            "mps",
            _q(
                "sum by (stage) (rate(newsfabric_router_stage_left_messages_total"
                f"{{{_ROUTER}}}[$__rate_interval]))",
                "{{stage}}",
            ),
        ),
        _panel(
            "Messages that end in a stage",
            "mps",
            _q(
                "sum by (stage) (rate(newsfabric_router_stage_entered_messages_total"
                f"{{{_ROUTER}}}[$__rate_interval])) - sum by (stage)"
                " (rate(newsfabric_router_stage_left_messages_total"
                f"{{{_ROUTER}}}[$__rate_interval]))",
                "{{stage}}",
            ),
            about="Rejected, repeated or given up. The stage identify has the work to drop copies.",
        ),
        _panel(
            "Time in the router",
            "s",
            _q(_p99("newsfabric_router_pass_seconds", "region", _ROUTER, "0.5"), "p50"),
            _q(_p99("newsfabric_router_pass_seconds", "region", _ROUTER), "p99"),
            about="The time from the broker's delivery until both publications are confirmed.",
        ),
        _panel(
            "Rejected messages",
            "mps",
            _q(
                "sum by (reason) (rate(newsfabric_router_rejected_messages_total"
                f"{{{_ROUTER}}}[$__rate_interval]))",
                "{{reason}}",
            ),
        ),
        _panel(
            "Shed and expired messages, void numbers",
            "mps",
            _q(
                f"sum(rate(newsfabric_router_shed_messages_total{{{_ROUTER}}}[$__rate_interval]))",
                "shed",
            ),
            _q(
                f"sum(rate(newsfabric_router_expired_messages_total{{{_ROUTER}}}[$__rate_interval]))",
                "expired",
            ),
            _q(
                f"sum(rate(newsfabric_router_void_numbers_total{{{_ROUTER}}}[$__rate_interval]))",
                "void numbers",
            ),
        ),
        _panel(
            "Publications at gateways",
            "mps",
            _q(
                f"sum by (class) (region_class:newsfabric_gateway_publications:rate1m{{{_R}}})",
                "{{class}}",
            ),
        ),
        _panel(
            "Delay to readers by class, p99",
            "s",
            _q(
                _p99("newsfabric_gateway_delay_seconds", "class, origin", _R),
                "{{class}} from {{origin}}",
                exemplars=True,
            ),
            about="The time from the router to the reader's socket.",
        ),
        _panel(
            "Age by publishers' timestamps, p99",
            "s",
            _q(_p99("newsfabric_router_claimed_age_seconds", "region", _R), "{{region}}"),
            _q(
                "sum by (region) (rate(newsfabric_router_claimed_ahead_messages_total"
                f"{{{_R}}}[$__rate_interval]))",
                "{{region}}: messages with a later time than the router's, each second",
                rare=True,
            ),
            about="The age of messages on their arrival at a router.",
        ),
        _panel(
            "Holes and repairs",
            "short",
            _q(f"sum by (box) (newsfabric_gateway_holes_open{{{_R}}})", "{{box}}: open"),
            _q(
                f"sum by (box) (newsfabric_gateway_missing_numbers{{{_R}}})",
                "{{box}}: missing numbers",
            ),
            _q(
                "sum by (box) (rate(newsfabric_gateway_recovered_messages_total"
                f"{{{_R}}}[$__rate_interval]))",
                "{{box}}: messages recovered each second",
            ),
        ),
        _panel(
            "Receipts",
            "mps",
            _q(
                f"sum(rate(newsfabric_router_receipts_total{{{_ROUTER}}}[$__rate_interval]))",
                "receipts",
            ),
        ),
    ),
)

RACES: Final = Dashboard(
    "newsfabric-races",
    "newsfabric: races",
    "Which way of a gold message is the fastest, and by how much?",
    ("region",),
    (
        _panel(
            "First copies at routers, by way",
            "mps",
            _q(
                "sum by (way) (rate(newsfabric_router_copies_total"
                f'{{place="first",{_ROUTER}}}[$__rate_interval]))',
                "{{way}}",
            ),
        ),
        _panel(
            "First copies at gateways, by way",
            "mps",
            _q(
                "sum by (way) (rate(newsfabric_gateway_copies_total"
                f'{{place="first",{_R}}}[$__rate_interval]))',
                "{{way}}",
            ),
            about="`store`: no shovel brought the message in time; it was read from the store.",
        ),
        _panel(
            "Later copies at gateways, by way",
            "mps",
            _q(
                "sum by (way) (rate(newsfabric_gateway_copies_total"
                f'{{place="later",{_R}}}[$__rate_interval]))',
                "{{way}}",
            ),
        ),
        _panel(
            "Lead at routers, median",
            "s",
            _q(
                _p99("newsfabric_router_race_lead_seconds", "way", _ROUTER, "0.5"),
                "{{way}}",
                rare=True,
            ),
        ),
        _panel(
            "Lead at gateways, median",
            "s",
            _q(_p99("newsfabric_gateway_race_lead_seconds", "way", _R, "0.5"), "{{way}}"),
            about="A way that is never first is a spare. One that leads by seconds hides a fault.",
        ),
        _panel(
            "Dropped copies and repeats",
            "mps",
            _q(
                "sum by (box) (rate(newsfabric_gateway_duplicates_total"
                f"{{{_R}}}[$__rate_interval]))",
                "{{box}}",
            ),
        ),
    ),
)

SHOVELS: Final = Dashboard(
    "newsfabric-shovels",
    "newsfabric: shovels",
    "Does every shovel move messages?",
    ("region",),
    (
        _panel(
            "Age of canaries",
            "s",
            _q(
                f"max by (region, shovel) (newsfabric_shovels_canary_age_seconds{{{_R}}})",
                "{{region}}: {{shovel}}",
            ),
            about="The time since the newest received canary was sent. Each second one is sent.",
        ),
        _panel(
            "Shovels that don't run",
            "short",
            _q(
                f"newsfabric_shovels_wanted{{{_R}}} - newsfabric_shovels_running{{{_R}}}",
                "{{region}}",
            ),
        ),
        _panel(
            "Shovels made anew",
            "short",
            _q(
                "sum by (region, shovel) (increase(newsfabric_shovels_restarts_total"
                f"{{{_R}}}[1h]))",
                "{{region}}: {{shovel}}, in the last hour",
                rare=True,
            ),
        ),
        _panel(
            "Canaries",
            "cps",
            _q(
                "sum by (region, outcome) (rate(newsfabric_shovels_sent_canaries_total"
                f"{{{_R}}}[$__rate_interval]))",
                "{{region}}: sent, {{outcome}}",
            ),
            _q(
                "sum by (region) (rate(newsfabric_shovels_arrived_canaries_total"
                f"{{{_R}}}[$__rate_interval]))",
                "{{region}}: arrived",
            ),
        ),
        _panel(
            "Changes by keepers",
            "cps",
            _q(
                "sum by (region, verb, kind, outcome) (rate(newsfabric_shovels_actions_total"
                f"{{{_R}}}[$__rate_interval]))",
                "{{region}}: {{verb}} {{kind}}, {{outcome}}",
            ),
        ),
        _panel(
            "Ticks at boxes",
            "cps",
            _q(
                "sum by (box, shovel) (rate(newsfabric_retail_ticks_total"
                f"{{{_R}}}[$__rate_interval]))",
                "{{box}}: ticks through {{shovel}}",
            ),
        ),
    ),
)

STORE: Final = Dashboard(
    "newsfabric-store",
    "newsfabric: store",
    "Does the store accept writes and answer reads?",
    ("region",),
    (
        _panel(
            "Stored messages",
            "mps",
            _q(
                "sum by (region) (rate(newsfabric_router_stage_left_messages_total"
                f'{{stage="store",{_ROUTER}}}[$__rate_interval]))',
                "{{region}}",
            ),
        ),
        _panel(
            "Time of a write",
            "s",
            _q(
                _p99("newsfabric_router_store_write_seconds", "region", _ROUTER, "0.5"),
                "{{region}}, p50",
            ),
            _q(_p99("newsfabric_router_store_write_seconds", "region", _ROUTER), "{{region}}, p99"),
        ),
        _panel(
            "Messages and marks that wait for the store",
            "short",
            _q(f"newsfabric_router_waiting_messages{{{_ROUTER}}}", "{{instance}}: messages"),
            _q(
                f'newsfabric_mailbox_waiting_marks{{process="mailbox",{_R}}}',
                "{{instance}}: marks",
            ),
        ),
        _panel(
            "Repeated writes",
            "cps",
            _q(
                "sum by (region) (rate(newsfabric_router_store_retries_total"
                f"{{{_ROUTER}}}[$__rate_interval]))",
                "{{region}}: routers",
            ),
            _q(
                "sum by (region) (rate(newsfabric_mailbox_store_retries_total"
                f'{{process="mailbox",{_R}}}[$__rate_interval]))',
                "{{region}}: mailbox services",
            ),
        ),
        _panel(
            "Gateways' reads without an answer",
            "cps",
            _q(
                "sum by (region) (rate(newsfabric_gateway_store_failures_total"
                f"{{{_R}}}[$__rate_interval]))",
                "{{region}}: of readers",
            ),
            _q(
                "sum by (region) (rate(newsfabric_gateway_log_failures_total"
                f"{{{_R}}}[$__rate_interval]))",
                "{{region}}: of logs",
            ),
        ),
        _panel(
            "Missing numbers that gateways read",
            "rowsps",
            _q(
                "sum by (region) (rate(newsfabric_gateway_read_numbers_total"
                f"{{{_R}}}[$__rate_interval]))",
                "{{region}}",
            ),
        ),
        _panel(
            "Rows that can't be read",
            "cps",
            _q(
                "sum by (region) (rate(newsfabric_store_unreadable_rows_total"
                f"{{{_R}}}[$__rate_interval]))",
                "{{region}}",
            ),
        ),
    ),
)

DASHBOARDS: Final = (FLEET, REGION, BOX, MESSAGE_PATH, RACES, SHOVELS, STORE)


if __name__ == "__main__":
    made = {file_name(each): json_of(each) for each in DASHBOARDS}
    if len(sys.argv) == 1:
        json.dump(made, sys.stdout)
    for name, found in made.items() if len(sys.argv) > 1 else ():
        Path(sys.argv[1], name).write_text(json.dumps(found, indent=2) + "\n")
