"""What the tests of playbooks share: running one, and asking what came of it."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import IO, Any

from fleet import access
from fleet.fleet import Fleet
from fleet.folders import CHECKOUT
from fleet.plan import machine
from fleet.playbooks import INVENTORY, PLAYBOOKS, command, environment

_RECAP = re.compile(r"^(\S+) +: ok=\d+ +changed=(\d+) +unreachable=(\d+) +failed=(\d+)", re.M)


def played(fleet: Fleet, name: str, *options: str) -> subprocess.CompletedProcess[str]:
    """A playbook that has ended, and what it said."""
    return subprocess.run(
        command(PLAYBOOKS / name, INVENTORY, options),
        env=environment(fleet.folders),
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )


def plays(fleet: Fleet, name: str, *options: str) -> subprocess.CompletedProcess[str]:
    """A playbook that must succeed."""
    done = played(fleet, name, *options)
    assert done.returncode == 0, done.stdout[-3000:]
    return done


def changes(done: subprocess.CompletedProcess[str]) -> dict[str, int]:
    """How many tasks have changed each machine."""
    return {found[1]: int(found[2]) for found in _RECAP.finditer(done.stdout)}


def on(fleet: Fleet, name: str, *words: str) -> str:
    """What a command says on a machine, whether it fails or not."""
    words = tuple(access.ssh(fleet.folders, name, *words))
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False).stdout


def until(what: str, holds: Callable[[], bool], seconds: float = 300.0) -> None:
    """Wait for something that takes a machine its time; AssertionError with ``what`` if it does
    not come."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(1.0)


def desk(region: str) -> str:
    """A frontdesk's URL within the fleet's network."""
    return f"http://{machine(f'{region}-core-1').address}:8080"


def asked(fleet: Fleet, url: str, *options: str) -> Any:
    """What a URL within the fleet's network answers, as JSON."""
    words = fleet.network.within("curl", "--silent", "--show-error", *options, url)
    return json.loads(subprocess.run(words, capture_output=True, timeout=60, check=True).stdout)


def publish(fleet: Fleet, region: str, topic: str, body: object) -> str:
    """Publish over HTTP; the message's id."""
    words = fleet.network.within(
        *("curl", "--silent", "--header", "@-", "--header", "Content-Type: application/json"),
        *("--data", json.dumps({"topic": topic, "body": body}), f"{desk(region)}/publish"),
    )
    key = f"X-API-Key: {access.api_key(fleet.folders)}"
    done = subprocess.run(words, input=key, capture_output=True, text=True, timeout=60, check=True)
    return str(json.loads(done.stdout)["id"])


@dataclasses.dataclass
class Crowd:
    """Readers of ``regions``, the first one's to begin with (tests.fleet.crowd).

    Within the block they read; ``report`` is what came of it, after the block.
    """

    fleet: Fleet
    regions: tuple[str, ...]
    readers: int
    per_second: float
    topics: int = 1
    report: dict[str, Any] = dataclasses.field(default_factory=dict)

    def __enter__(self) -> Crowd:
        desks = ",".join(desk(region) for region in self.regions)
        key = access.api_key(self.fleet.folders)
        told = (desks, key, str(self.readers), str(self.per_second), str(self.topics))
        self._program = subprocess.Popen(
            self.fleet.network.within(sys.executable, "-m", "tests.fleet.crowd", *told),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=CHECKOUT,
            env=os.environ | {"PYTHONPATH": f"{CHECKOUT}:{CHECKOUT / 'deploy'}"},
        )
        assert self._said().readline() == "ready\n"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            self._program.kill()
        said, _ = self._program.communicate(timeout=300)
        if kind is None:
            self.report = json.loads(said)

    @property
    def noticed_nothing(self) -> bool:
        """Whether no reader was disconnected, and no delivery lost or doubled."""
        left = self.report["disconnected"] + self.report.get("left", 0)
        return left == 0 and self.missed_nothing

    @property
    def missed_nothing(self) -> bool:
        """Whether no delivery was lost or doubled, also to readers that had to come again."""
        return (self.report["lost"], self.report["doubled"]) == (0, 0)

    def _said(self) -> IO[str]:
        assert self._program.stdout is not None
        return self._program.stdout
