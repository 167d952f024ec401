"""A fresh Debian of each suite on which a stranger's steps are played: README, tests, chaos.

Each suite is a machine of its own, a container with systemd-nspawn on the image's lowest layer. It
has this machine's network, since the README's steps install packages. Of this checkout it has the
last commit, and the data plane and Toxiproxy as they were built here: they run on each Debian that
is not older than the one that they were built on.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from fleet import cgroups
from fleet.errors import FleetError
from fleet.folders import CHECKOUT, Folders
from fleet.image import Image, PrintLine, mount_overlay, unmount
from fleet.run import end_of, run

_PLACE: Final = "root/newsfabric"
_TOXIPROXY: Final = ".tools/toxiproxy"
_DATAPLANE: Final = "target/release/newsfabric-dataplane"
# Settings of a company's proxy and registries: this machine's are passed on to the others.
_PASSED_ON: Final = re.compile(r"PIP_\w+|(https?|all|no)_proxy", re.IGNORECASE)
_AUTHORITIES: Final = "etc/ssl/certs/ca-certificates.crt"
_SECTION: Final = re.compile(r"^## See a headline cross the fabric\n(.*?)^## ", re.M | re.S)
_COMMANDS: Final = re.compile(r"^```sh\n(.*?)^```", re.M | re.S)
_SUMMARY: Final = re.compile(r"\d+ (?:passed|failed)\b.* in [\d.]+s")

_INSTALL: Final = """
apt-get update
DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends git make python3
make setup
"""
_BROKERS: Final = ".venv/bin/pytest -n 3 -m 'broker and not (slow or fleet)' {options}"
_CHAOS: Final = """
world="--state .world-chaos"
.venv/bin/newsfabric up $world --detach --regions oregon,dublin --client-nodes 2 --core-nodes 3 \\
    --retail 2 --port-base 29000 --timeout 400
result=0
.venv/bin/newsfabric chaos run $world --minutes 2 --seed 31337 || result=$?
.venv/bin/newsfabric down $world
exit $result
"""
_VERSIONS: Final = """
. /etc/os-release
echo "system $PRETTY_NAME"
.venv/bin/python - <<'END'
import os, pathlib, platform
from localfabric.world.rabbitmq_home import find_rabbitmq
home = find_rabbitmq(pathlib.Path("."), os.environ)
print("RabbitMQ", home.version)
print("Python", platform.python_version())
END
erl -noshell -eval 'io:format("Erlang ~s~n", [erlang:system_info(otp_release)]), halt().'
if command -v java >/dev/null; then java --version | awk 'NR == 1 { print "Java", $2 }'; fi
if command -v php >/dev/null; then php -r 'echo "PHP ", PHP_VERSION, "\\n";'; fi
if command -v node >/dev/null; then node -p '"Node " + process.versions.node'; fi
if command -v chromium >/dev/null; then chromium --version; fi
"""


@dataclasses.dataclass(frozen=True, slots=True)
class PlatformStep:
    """A script of bash that is run in the checkout, for at most ``seconds``."""

    name: str
    script: str
    seconds: float


@dataclasses.dataclass(frozen=True, slots=True)
class PlatformOutcome:
    """The result of a step: its exit code, its duration, and a line of its own summary."""

    step: str
    code: int
    seconds: float
    note: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Platform:
    """A suite, the versions of the programs on it, and the results of the steps."""

    suite: str
    versions: Mapping[str, str]
    outcomes: Sequence[PlatformOutcome]

    @property
    def works(self) -> bool:
        """True if every step worked."""
        return all(outcome.code == 0 for outcome in self.outcomes)


def readme_commands(readme: str) -> str:
    """Return the commands of the README's first world, without set-up, which is an earlier step."""
    section = _SECTION.search(readme)
    if section is None:
        raise FleetError("the README has no section 'See a headline cross the fabric' any more")
    lines = "".join(_COMMANDS.findall(section[1])).replace("make setup\n", "").splitlines()
    # The process in the background must end well, too.
    return "\n".join([*lines[:-1], "wait $!", lines[-1]])


def steps(readme: str, tests: str) -> tuple[PlatformStep, ...]:
    """Return all steps, in order. ``tests`` are options of pytest. The first step must work."""
    return (
        PlatformStep("set-up", _INSTALL, 3600),
        PlatformStep("the README's commands", readme_commands(readme), 900),
        PlatformStep("tests marked broker", _BROKERS.format(options=tests), 5400),
        PlatformStep("chaos, 2 client and 3 core brokers a region", _CHAOS, 1200),
    )


class Machine:
    """A fresh machine of ``image``; its files are below ``folder``."""

    def __init__(self, folders: Folders, suite: str, image: Image) -> None:
        self._folders = folders
        self._suite = suite
        self._base = image.layers()[-1]
        self._folder = folders.top / "platforms" / suite
        self._root = self._folder / "root"

    def __enter__(self) -> Machine:
        self._clear()
        parts = {name: self._folder / name for name in ("upper", "work", "root")}
        for part in parts.values():
            part.mkdir(parents=True)
        mount_overlay((self._base,), parts["upper"], parts["work"], parts["root"])
        checkout = self._root / _PLACE
        run("git", "clone", "--quiet", "--depth", "1", f"file://{CHECKOUT}", checkout)
        (checkout / _DATAPLANE).parent.mkdir(parents=True)
        # Newer than its sources: it isn't built again.
        shutil.copyfile(CHECKOUT / _DATAPLANE, checkout / _DATAPLANE)
        (checkout / _DATAPLANE).chmod(0o755)
        # Built with Go, which the README doesn't require; without it no link is cut.
        if (CHECKOUT / _TOXIPROXY).is_dir():
            shutil.copytree(CHECKOUT / _TOXIPROXY, checkout / _TOXIPROXY)
        shutil.copyfile(f"/{_AUTHORITIES}", self._root / _AUTHORITIES)
        # Debian's installer writes it; debootstrap does so from Debian 13 on.
        if not (hosts := self._root / "etc" / "hosts").exists():
            hosts.write_text("127.0.0.1 localhost\n", "utf-8")
        return self

    def __exit__(self, *_: object) -> None:
        self._clear()

    def play(self, step: PlatformStep, log: Path) -> PlatformOutcome:
        """Run the step with its output in ``log``."""
        begun = time.monotonic()
        with log.open("w") as out:
            try:
                code = subprocess.run(
                    self._command(step.script),
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=out,
                    timeout=step.seconds,
                    check=False,
                ).returncode
            except subprocess.TimeoutExpired:
                code = 124
        note = summary(log.read_text("utf-8", "replace"))
        return PlatformOutcome(step.name, code, time.monotonic() - begun, note)

    def run_script(self, script: str) -> str:
        """Return the output of a short script."""
        return run(*self._command(script), seconds=120)

    def fetch(self, name: str, into: Path) -> None:
        """Copy a folder of its checkout, if there is one."""
        folder = self._root / _PLACE / name
        if folder.is_dir():
            shutil.copytree(folder, into, dirs_exist_ok=True)

    def _command(self, script: str) -> tuple[str, ...]:
        alone = not cgroups.systemd_runs()
        passed_on = [f"{name}={value}" for name, value in os.environ.items() if _passes(name)]
        command: tuple[str, ...] = (
            "systemd-nspawn",
            "--quiet",
            "--as-pid2",
            "--pipe",
            f"--directory={self._root}",
            f"--machine=platform-{self._suite}",
            "--resolv-conf=replace-host",
            "--register=no",
            *(["--keep-unit"] if alone else []),
            *(f"--setenv={each}" for each in ("LANG=C.UTF-8", *passed_on)),
            *("bash", "-euo", "pipefail", "-c", f"cd /{_PLACE}\n{script}"),
        )
        if alone:
            groups = cgroups.make(f"{self._folders.namespace}-platforms", self._suite)
            command = (*cgroups.entering(groups), *command)
        return command

    def _clear(self) -> None:
        unmount(self._folder)
        if self._folder.exists():
            shutil.rmtree(self._folder)


def play(
    folders: Folders, suites: Iterable[str], report: Path, tests: str, print_line: PrintLine
) -> bool:
    """Play all steps on each suite and write ``report``; return whether all of them worked."""
    if not (CHECKOUT / _DATAPLANE).exists():
        raise FleetError("there is no data plane to bring along: `make dataplane` builds it")
    report.mkdir(parents=True, exist_ok=True)
    planned = steps((CHECKOUT / "README.md").read_text("utf-8"), tests)
    platforms: list[Platform] = []
    for suite in suites:
        platforms.append(_play_one(folders, suite, planned, report, print_line))
        (report / "report.md").write_text(table(platforms))
        (report / "report.json").write_text(json.dumps(documents(platforms), indent=1) + "\n")
    return all(platform.works for platform in platforms)


def _play_one(
    folders: Folders,
    suite: str,
    planned: Sequence[PlatformStep],
    report: Path,
    print_line: PrintLine,
) -> Platform:
    image = Image(folders, suite, print_line)
    image.build_base()
    outcomes: list[PlatformOutcome] = []
    versions: dict[str, str] = {}
    with Machine(folders, suite, image) as machine:
        for number, step in enumerate(planned, 1):
            print_line(f"{suite}, {number} of {len(planned)}: {step.name}")
            log = report / f"{suite}-{number}.log"
            outcome = machine.play(step, log)
            outcomes.append(outcome)
            words = outcome.note or ("works" if outcome.code == 0 else f"failed\n{end_of(log)}")
            print_line(f"{suite}: {step.name}: {words} ({outcome.seconds:.0f} s)")
            if number == 1:
                if outcome.code != 0:
                    break
                versions = versions_in(machine.run_script(_VERSIONS))
        machine.fetch("chaos-report", report / f"{suite}-chaos")
    return Platform(suite, versions, outcomes)


def versions_in(output: str) -> dict[str, str]:
    """Return a mapping of name to version, from lines of the two."""
    pairs = (line.partition(" ") for line in output.splitlines())
    return {name: version.strip() for name, _, version in pairs}


def summary(log: str) -> str:
    """Return the last line in which pytest counts its tests; empty if there is none."""
    found = _SUMMARY.findall(log)
    return found[-1] if found else ""


def table(platforms: Iterable[Platform]) -> str:
    """Return a table in Markdown, a line for each step of each platform."""
    lines = ["| suite | versions | step | result | s |", "|---|---|---|---|---:|"]
    for platform in platforms:
        versions = ", ".join(f"{name} {is_}" for name, is_ in platform.versions.items())
        for outcome in platform.outcomes:
            result = "works" if outcome.code == 0 else f"exit code {outcome.code}"
            text = f"{result}: {outcome.note}" if outcome.note else result
            lines.append(
                f"| {platform.suite} | {versions} | {outcome.step} | {text} "
                f"| {outcome.seconds:.0f} |"
            )
    return "\n".join(lines) + "\n"


def documents(platforms: Iterable[Platform]) -> list[dict[str, Any]]:
    """Return the same for programs."""
    return [dataclasses.asdict(platform) | {"works": platform.works} for platform in platforms]


def _passes(name: str) -> bool:
    return _PASSED_ON.fullmatch(name) is not None
