"""Parts of a board's document (``/board.json``), with ordinary values that a test can replace."""

from __future__ import annotations

from typing import Any

NOW = 1_795_000_000_000


def box(name: str, **changed: Any) -> dict[str, Any]:
    return {
        "name": name,
        "state": "ready",
        "waiting_for": [],
        "readers": 0,
        "capacity": 1000,
        "messages_per_second": 0.0,
        "deliveries_per_second": 0.0,
        "connects_per_second": 0.0,
        "delay_p50_ms": None,
        "delay_p99_ms": None,
        "engine": "native",
        "version": "0.1.0",
        "age_ms": 500,
        "started_ms": NOW - 3_600_000,
        "figures": {},
        **changed,
    }


def service(name: str, kind: str = "router", **changed: Any) -> dict[str, Any]:
    return {
        "name": name,
        "kind": kind,
        "version": "0.1.0",
        "state": "ready",
        "waiting_for": [],
        "age_ms": 400,
        "started_ms": NOW - 60_000,
        "figures": {},
        **changed,
    }


def shovel(name: str, **changed: Any) -> dict[str, Any]:
    return {
        "name": name,
        "runs_on": "oregon/core",
        "source": "oregon/client",
        "state": "running",
        "canary_age_ms": 300,
        "messages_per_second": 12.0,
        "restarts": 0,
        **changed,
    }


def region(name: str, **changed: Any) -> dict[str, Any]:
    return {
        "name": name,
        "frontdesk_url": "",
        "age_ms": 0,
        "state": "well",
        "why": [],
        "totals": {
            "readers": 0,
            "capacity": 1000,
            "boxes": 1,
            "boxes_ready": 1,
            "messages_per_second": 0.0,
            "deliveries_per_second": 0.0,
            "connects_per_second": 0.0,
            "delay_p50_ms": None,
            "delay_p99_ms": None,
        },
        "clusters": [],
        "services": [],
        "shovels": [],
        "boxes": [],
        "topics": [],
        "publishers": [],
        **changed,
    }


def event(seq: int, who: str, text: str, kind: str = "process_gone") -> dict[str, Any]:
    at = NOW + seq * 1000
    return {"seq": seq, "at_ms": at, "region": "oregon", "kind": kind, "who": who, "text": text}


def board(*regions: dict[str, Any], **changed: Any) -> dict[str, Any]:
    return {
        "frontdesk": "oregon-frontdesk-1",
        "region": "oregon",
        "version": "0.1.0",
        "now_ms": NOW,
        "regions": list(regions) or [region("oregon")],
        "events": [],
        **changed,
    }
