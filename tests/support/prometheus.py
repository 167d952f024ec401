"""Prometheus and promtool, where they are installed; a running Prometheus, queried over HTTP."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
OBSERVABILITY = ROOT / "deploy" / "observability"
# Seconds, for a start beside other tests on two cores.
PATIENCE = 60.0


def program(name: str) -> str:
    """Return the path of ``prometheus`` or ``promtool``; or skip on a laptop and fail in CI."""
    unpacked = ROOT / ".tools" / "prometheus" / "usr" / "bin" / name
    found = shutil.which(name) or (str(unpacked) if unpacked.exists() else None)
    if found is None:
        missing = f"{name} is missing: scripts/setup prometheus"
        if os.environ.get("CI"):
            pytest.fail(f"CI must have it: {missing}")
        pytest.skip(missing)
    return found


def rules(name: str) -> dict[str, Any]:
    """Parse a file of rules."""
    read: dict[str, Any] = yaml.safe_load((OBSERVABILITY / "rules" / name).read_text())
    return read


def alerts() -> dict[str, dict[str, Any]]:
    """Return every alert by its name."""
    groups = rules("alerts.yml")["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


class Prometheus:
    """A running Prometheus; times are its own."""

    def __init__(self, url: str) -> None:
        self.url = url

    def get(self, path: str, **arguments: str) -> Any:
        """Return ``data`` of its API's answer; AssertionError with the answer if it refuses."""
        query = f"?{urlencode(arguments)}" if arguments else ""
        with urlopen(f"{self.url}/api/v1/{path}{query}", timeout=30) as answer:
            read = json.load(answer)
        assert read["status"] == "success", read
        return read["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the instant vector of ``expression``."""
        found: list[dict[str, Any]] = self.get("query", query=expression)["result"]
        return found

    def firing(self) -> dict[str, list[dict[str, str]]]:
        """Return the labels of the alerts firing now, by alert."""
        fires: dict[str, list[dict[str, str]]] = {}
        for alert in self.get("alerts")["alerts"]:
            if alert["state"] == "firing":
                fires.setdefault(alert["labels"]["alertname"], []).append(alert["labels"])
        return fires


@contextlib.contextmanager
def running(
    folder: Path, port: int, targets: list[dict[str, Any]], *, quick: bool = False
) -> Iterator[Prometheus]:
    """Run a Prometheus with our rules that scrapes ``targets`` each second.

    With ``quick``, an alert's ``for`` is two seconds, and its ranges are a twentieth as long, but
    ten seconds at least. Those of ten minutes and more are one minute: tests wait for several of
    these alerts in turn.
    """
    (folder / "targets.json").write_text(json.dumps(targets))
    (folder / "rules").mkdir()
    for name in ("recording.yml", "alerts.yml"):
        read = rules(name)
        if quick:
            _hurry(read)
        (folder / "rules" / name).write_text(yaml.safe_dump(read))
    config = yaml.safe_load((OBSERVABILITY / "prometheus.world.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    url = f"http://127.0.0.1:{port}"
    command = [program("prometheus"), f"--config.file={folder / 'prometheus.yml'}"]
    command += [f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address=127.0.0.1:{port}"]
    command += ["--enable-feature=exemplar-storage", "--log.level=warn"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            _await_ready(url, process, folder / "log")
            yield Prometheus(url)
        finally:
            process.terminate()
            process.wait(PATIENCE)


def _hurry(read: dict[str, Any]) -> None:
    for group in read["groups"]:
        for rule in group["rules"]:
            rule["expr"] = re.sub(r"\[(\d+)m\]", _shorter, rule["expr"])
            if "for" in rule:
                rule["for"] = "2s"


def _shorter(found: re.Match[str]) -> str:
    minutes = int(found[1])
    # Targets are scraped each second, on a busy machine sometimes only every few.
    return f"[{60 if minutes >= 10 else max(10, 3 * minutes)}s]"


def _await_ready(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            with urlopen(f"{url}/-/ready", timeout=5):
                return
        except (URLError, ConnectionError):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
