"""A scaler's decision for the largest number of boxes, with all its work for each second.

Pure Python in this process, with a simulated clock: only processor time is measured.
"""

from __future__ import annotations

import time
from typing import Final

from bench.rows import BenchRow
from newsfabric.messages.control import LoadReport
from wholesale.scaler.deciding import Scaler
from wholesale.scaler.drivers import MOST_BOXES, Instance
from wholesale.scaler.plan import ScalingPlan

SECONDS: Final = 400
# While the plan's patience lasts, at first, no box may be ended: decisions are shorter then.
_SETTLED: Final = 150


def measure() -> list[BenchRow]:
    """Decide for 1,000 boxes, second by second, with readers that arrive, stay and leave."""
    plan = ScalingPlan(most=MOST_BOXES, boot=20.0, drain=20.0, calm=60.0)
    scaler = Scaler("oregon", plan)
    names = [f"box-{n}" for n in range(MOST_BOXES)]
    instances = [Instance(name, 5000.0, f"z{n % 3}") for n, name in enumerate(names)]
    decided, hearing = [], []
    for second in range(SECONDS):
        now = 10_000.0 + second
        reports = [_report(name, n, second) for n, name in enumerate(names)]
        began = time.thread_time()
        for report in reports:
            scaler.note_report(report, now=now)
        hearing.append(time.thread_time() - began)
        scaler.listed(instances, now=now)
        began = time.thread_time()
        scaler.decide(now=now)
        if second >= _SETTLED:
            decided.append(time.thread_time() - began)
    decided.sort()
    boxes = f"{MOST_BOXES:,} boxes"
    return [
        BenchRow(f"decision, {boxes}, p50", _ms(decided, 0.5), "ms", at_most=50),
        BenchRow(f"decision, {boxes}, p99", _ms(decided, 0.99), "ms", at_most=50),
        BenchRow(f"a second's reports, {boxes}, p50", _ms(sorted(hearing), 0.5), "ms"),
    ]


def _ms(seconds: list[float], share: float) -> float:
    return 1000 * seconds[min(len(seconds) - 1, int(share * len(seconds)))]


def _report(name: str, n: int, second: int) -> LoadReport:
    return LoadReport(
        region="oregon",
        box=name,
        state="ready",
        connections=20_000 + (n * 37 + second * 11) % 10_000,
        capacity=100_000,
        deliveries_per_second=0.0,
        connects_per_second=float((n + second) % 50),
        sockjs_url="",
        websocket_url="",
        sse_url="",
        sent_ms=second * 1000,
    )
