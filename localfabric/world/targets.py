"""Prometheus' targets of a world, its processes: a ``file_sd`` document. Pure.

The labels are those that ``deploy/observability`` uses: ``region``, ``process`` (the kind),
``instance`` (the name, whatever the port), and ``box`` for processes that belong to one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from localfabric.world.broker import HOST
from localfabric.world.layout import RegionLayout, WorldLayout


def targets(layout: WorldLayout) -> list[dict[str, Any]]:
    """Return one group for each process that serves ``/metrics``."""
    return [group for region in layout.regions for group in _of_region(region)]


def _of_region(region: RegionLayout) -> Iterator[dict[str, Any]]:
    def group(process: str, name: str, port: int, **labels: str) -> dict[str, Any]:
        target_labels = {"region": region.name, "process": process, "instance": name} | labels
        return {"targets": [f"{HOST}:{port}"], "labels": target_labels}

    for service in region.services:
        yield group(service.kind, service.name, service.port)
    for box in region.boxes:
        yield group("gateway", box.gateway, box.admin_port, box=box.name)
        yield group("agent", f"{box.name}-agent", box.agent_port, box=box.name)
