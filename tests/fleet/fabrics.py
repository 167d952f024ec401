"""Functions for tests of playbooks: run one, and check the result."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from fleet import access
from fleet.fleet import Fleet
from fleet.folders import CHECKOUT
from fleet.plan import machine
from fleet.playbooks import INVENTORY, PLAYBOOKS, command, environment

# For headlines alone: a topic's history is bounded, and the crowd's messages are many.
TOPIC = "news.headlines"
_RECAP = re.compile(r"^(\S+) +: ok=\d+ +changed=(\d+) +unreachable=(\d+) +failed=(\d+)", re.M)


def played(fleet: Fleet, name: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run a playbook, and return its result."""
    return played_on(command(PLAYBOOKS / name, INVENTORY, options), environment(fleet.folders))


def played_on(words: list[str], variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a playbook of another inventory, and return its result."""
    done = subprocess.run(
        words,
        env=variables,
        capture_output=True,
        text=True,
        timeout=2400,
        check=False,
    )
    # Ansible prints YAML, which doubles an apostrophe within apostrophes.
    done.stdout = done.stdout.replace("''", "'")
    return done


def plays(fleet: Fleet, name: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run a playbook, which must succeed."""
    words = command(PLAYBOOKS / name, INVENTORY, options)
    return plays_on(words, environment(fleet.folders))


def plays_on(words: list[str], variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a playbook of another inventory, which must succeed."""
    done = played_on(words, variables)
    assert done.returncode == 0, done.stdout[-3000:]
    return done


def changes(done: subprocess.CompletedProcess[str]) -> dict[str, int]:
    """Return the number of changed tasks by machine; AssertionError if no machine was asked."""
    recap = {found[1]: int(found[2]) for found in _RECAP.finditer(done.stdout)}
    assert recap, done.stdout[-3000:]
    return recap


def on(fleet: Fleet, name: str, *words: str) -> str:
    """Return the output of a command on a machine, whether it fails or not."""
    words = tuple(access.ssh(fleet.folders, name, *words))
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False).stdout


def until(what: str, holds: Callable[[], bool], seconds: float = 300.0) -> None:
    """Wait until a slow action of a machine has ended; AssertionError with ``what`` if it never
    does."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(1.0)


def frontdesk(fleet: Fleet, region: str) -> str:
    """Return a frontdesk's URL within the fleet's network."""
    scheme = "https" if fleet.folders.certs.exists() else "http"
    return f"{scheme}://{machine(f'{region}-core-1').address}:8080"


def trusting(fleet: Fleet) -> dict[str, str]:
    """Return the environment of a program that trusts the fleet's authority, if it has one."""
    authority = fleet.folders.certs / "ca.pem"
    if not authority.exists():
        return {**os.environ}
    # curl prefers its own variable to OpenSSL's.
    return os.environ | dict.fromkeys(("SSL_CERT_FILE", "CURL_CA_BUNDLE"), str(authority))


def asked(fleet: Fleet, path: str, region: str = "oregon", header: str = "") -> Any:
    """Return the reply of a region's frontdesk to a path, as JSON."""
    words = fleet.network.within(
        *("curl", "--silent", "--show-error", "--header", "@-", frontdesk(fleet, region) + path)
    )
    done = subprocess.run(
        words,
        input=header.encode(),
        env=trusting(fleet),
        capture_output=True,
        timeout=60,
        check=True,
    )
    return json.loads(done.stdout)


def hears(fleet: Fleet, region: str, other: str) -> bool:
    """Return whether ``region``'s board, where an operator logs in, shows reports of ``other``."""
    token = access.operator_token(fleet.folders, "ada", 60.0)
    board = asked(fleet, "/board.json", region, f"Authorization: Bearer {token}")
    (found,) = [each for each in board["regions"] if each["name"] == other]
    # Before the first reply nothing is known of it.
    return found["state"] != "away" and found["services"] != []


def newsfabric(fleet: Fleet, *words: str) -> str:
    """Return the output of a ``newsfabric`` command on the fleet; the command must succeed."""
    program = Path(sys.executable).with_name("newsfabric")
    words = (str(program), *words, "--state", str(fleet.folders.top))
    return subprocess.run(words, capture_output=True, text=True, timeout=120, check=True).stdout


def boxes(fleet: Fleet, region: str) -> int:
    """Return the number of boxes that a region's frontdesk offers."""
    return len(asked(fleet, "/endpoints.json", region)["gateways"])


def headlines(fleet: Fleet, region: str) -> list[str]:
    """Return the headlines of the last messages that a region's frontdesk finds in the store."""
    found = asked(fleet, f"/history?topic={TOPIC}&limit=100", region)
    return [message["body"].get("headline", "") for message in found["messages"]]


def publish(fleet: Fleet, headline: str, key: str | None = None) -> int:
    """Publish over HTTP, by default with the fleet's own key; return the status of the reply."""
    words = fleet.network.within(
        *("curl", "--silent", "--output", "/dev/null", "--write-out", "%{http_code}"),
        *("--header", "@-", "--header", "Content-Type: application/json"),
        *("--data", json.dumps({"topic": TOPIC, "body": {"headline": headline}})),
        f"{frontdesk(fleet, 'oregon')}/publish",
    )
    text = f"X-API-Key: {key or access.api_key(fleet.folders)}"
    environment = trusting(fleet)
    done = subprocess.run(
        words, input=text, env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    return int(done.stdout)


@dataclasses.dataclass
class FleetCrowd:
    """Readers of ``regions``, at first of the first region (tests.fleet.crowd).

    They read within the block; ``report`` is the result, after the block. Their publisher uses
    HTTP, or with ``amqp`` AMQP, and in both cases begins in the first region.
    """

    fleet: Fleet
    regions: tuple[str, ...]
    readers: int
    per_second: float
    topics: int = 1
    amqp: bool = False
    frontdesks: tuple[str, ...] = ()
    amqp_urls: str = ""
    within: Callable[..., tuple[str, ...]] | None = None
    report: dict[str, Any] = dataclasses.field(default_factory=dict)

    def __enter__(self) -> FleetCrowd:
        frontdesks = ",".join(
            self.frontdesks or (frontdesk(self.fleet, region) for region in self.regions)
        )
        key = access.api_key(self.fleet.folders)
        arguments = (frontdesks, key, str(self.readers), str(self.per_second), str(self.topics))
        self._program = subprocess.Popen(
            (self.within or self.fleet.network.within)(
                *(sys.executable, "-m", "tests.fleet.crowd", *arguments)
            ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=CHECKOUT,
            env=trusting(self.fleet)
            | {"PYTHONPATH": f"{CHECKOUT}:{CHECKOUT / 'deploy'}"}
            | ({"CROWD_AMQP_URLS": self.amqp_urls or self._amqp_urls()} if self.amqp else {}),
        )
        assert self._output().readline() == "ready\n"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            self._program.kill()
        output, _ = self._program.communicate(timeout=900)
        if kind is None:
            self.report = json.loads(output)

    @property
    def noticed_nothing(self) -> bool:
        """Return whether no reader was disconnected, and no delivery lost or doubled."""
        left = self.report["disconnected"] + self.report.get("left", 0)
        return left == 0 and self.missed_nothing

    @property
    def missed_nothing(self) -> bool:
        """Return whether no delivery was lost or doubled, even to readers that had to reconnect."""
        return (self.report["lost"], self.report["doubled"]) == (0, 0)

    def _amqp_urls(self) -> str:
        urls = access.amqp_urls(self.fleet.folders, self.fleet.members())
        return " ".join(",".join(urls[region]) for region in self.regions)

    def _output(self) -> IO[str]:
        assert self._program.stdout is not None
        return self._program.stdout
