"""The whole fleet: up, down, and status.

Every step looks at the present state and does only the missing part, so a command that was
interrupted is simply given again.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable, Container, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from fleet import access, cgroups, kernel
from fleet.errors import FleetError
from fleet.folders import Folders
from fleet.forwards import forwards_of, open_forwards
from fleet.image import DEFAULT_SUITE, SUITES, Image, forget_others, unmount
from fleet.machines import Machines
from fleet.network import Network
from fleet.plan import Machine, machine, machines_of

# Boots at once: more would only wait for each other's processor time.
_AT_ONCE: Final = 4
PORT_BASE: Final = 18080
# A machine boots in 10 to 20 s. Beside the tests of a whole CI run it once took more than 120 s.
_BOOT_SECONDS: Final = 400
_OFF_SECONDS: Final = 90
# To the kernel each machine's root is this machine's root, so it counts their inotify instances
# together: a dozen a machine, and 128 are allowed. An init that gets none gives up.
_WATCHES: Final = 1024

PrintLine = Callable[[str], None]


class Fleet:
    """The fleet in ``folders``; ``print_line`` is called with each line about the progress."""

    def __init__(self, folders: Folders, print_line: PrintLine) -> None:
        self.folders = folders
        self.network = Network(folders.namespace)
        self.machines = Machines(folders, self.network)
        self._print_line = print_line

    def members(self) -> tuple[Machine, ...]:
        """Return the machines that belong to the fleet, running or not."""
        return tuple(machine(name) for name in self._notes()["machines"])

    @property
    def suite(self) -> str:
        """Debian's suite for machines without a chosen one."""
        suite: str = self._notes()["suite"]
        return suite

    def image(self, suite: str) -> Image:
        """Return the image of that suite. FleetError for an unknown suite."""
        if suite not in SUITES:
            raise FleetError(f"no image of {suite}; there are {', '.join(SUITES)}")
        return Image(self.folders, suite, self._print_line)

    def boards(self) -> dict[str, str]:
        """Return the URL of each region's board on this machine, by region."""
        forwards = forwards_of(self.members(), self._notes()["port_base"])
        scheme = self._scheme()
        return {
            region: f"{scheme}://127.0.0.1:{port}/board" for region, (port, _) in forwards.items()
        }

    def build_image(self, suite: str | None = None) -> None:
        """Make the image of ``suite``, or of the fleet's, if its sources have changed."""
        with self.folders.locked():
            self._build_image(suite or self.suite)

    def up(self, size: int, *, suite: str | None = None, port_base: int | None = None) -> None:
        """Boot the missing machines of a fleet of ``size``; forwards begin at port ``port_base``.

        Machines without a disk get one of ``suite``, and so do machines that are booted later.
        FleetError while a larger fleet is up.
        """
        with self.folders.locked():
            wanted = machines_of(size)
            first = [m for m in self.members() if m not in wanted and m.role != "retail"]
            if first:
                raise FleetError(
                    f"a larger fleet is here ({first[0].name} is in it): `make fleet-down` ends it"
                )
            suite = suite or self.suite
            self._build_image(suite)
            self._note(self.members(), suite=suite, port_base=port_base)
            self._start([*self.members(), *(m for m in wanted if m not in self.members())], suite)

    def boot(self, names: Sequence[str], *, new: bool, suite: str | None = None) -> None:
        """Boot these, also machines new to the fleet; with ``new`` on an empty disk.

        A new disk is of ``suite``, or of the fleet's. FleetError without a fleet, or for a running
        machine that is to have a ``new`` disk.
        """
        with self.folders.locked():
            chosen = [machine(name) for name in names]
            if not self.members():
                raise FleetError("no fleet is up: `make fleet` starts one")
            running = self.machines.running()
            for one in chosen if new else ():
                if one.name in running:
                    raise FleetError(f"{one.name} runs: power it off before it gets a new disk")
                self.machines.forget(one.name)
            suite = suite or self.suite
            if not self.image(suite).ready:
                self._build_image(suite)
            self._note([*self.members(), *(m for m in chosen if m not in self.members())])
            self._start(chosen, suite)

    def power_off(self, names: Sequence[str], *, forget: bool) -> None:
        """Power these off; with ``forget`` they leave the fleet and their disks are deleted."""
        with self.folders.locked():
            chosen = self._known(names)
            for late in self.machines.power_off([m.name for m in chosen], _OFF_SECONDS):
                self._print_line(f"{late} did not power off within {_OFF_SECONDS} s and was killed")
            if forget:
                self._note([m for m in self.members() if m not in chosen])
                self._describe()
                for one in chosen:
                    self.machines.forget(one.name)

    def pull_plug(self, names: Sequence[str]) -> None:
        """End these at once, by SIGKILL."""
        with self.folders.locked():
            self.machines.pull_plug([m.name for m in self._known(names)])

    def down(self, *, image_too: bool) -> None:
        """End everything and delete every disk; the image stays unless ``image_too``."""
        with self.folders.locked():
            running = self.machines.running()
            if running:
                self._print_line(f"pulling the plug of {len(running)} machines")
            self.machines.pull_plug(sorted(running))
            for pid in kernel.processes_in(self.network.path):
                kernel.kill(pid)
            unmount(self.folders.top)
            cgroups.remove_all(self.network.name)
            self.network.down()
            for folder in (self.folders.machines, self.folders.build, self.folders.certs):
                if folder.exists():
                    shutil.rmtree(folder)
            for file in (
                self.folders.notes,
                self.folders.ssh_config,
                self.folders.known_hosts,
                self.folders.key,
                self.folders.key.with_suffix(".pub"),
                self.folders.top / "forwards.log",
                self.folders.hosts,
                # The inventory derives the fleet's passwords from these.
                self.folders.secret,
                self.folders.former_secret,
                self.folders.topics,
                self.folders.scale_out_log,
                self.folders.top / "token-key.pem",
                self.folders.top / "token-keys.pem",
                # Of docs/fleet.md, for `top`.
                self.folders.top / "token",
            ):
                file.unlink(missing_ok=True)
            if image_too and self.folders.layers.exists():
                shutil.rmtree(self.folders.layers)

    def status(self) -> dict[str, Any]:
        """Return the present state, as JSON: read from the kernel now."""
        running = self.machines.running()
        disks = set(self.machines.with_disks())
        return {
            "network": self.network.name if self.network.exists else None,
            "suite": self.suite,
            "images": [suite for suite in SUITES if self.image(suite).ready],
            "boards": self.boards(),
            "cuts": sorted(sorted(pair) for pair in self.network.cuts()),
            "machines": [
                {
                    "name": m.name,
                    "region": m.region,
                    "role": m.role,
                    "zone": m.zone,
                    "address": m.address,
                    "suite": self.machines.suite_of(m.name),
                    "state": _state(m.name, running, disks),
                    "pid": running[m.name].init if m.name in running else None,
                }
                for m in self.members()
            ],
        }

    def _build_image(self, suite: str) -> None:
        built = self.image(suite).build()
        forget_others(self.folders, self.machines.layers_used())
        self._print_line(f"the image of {suite} is {'made' if built else 'as it should be'}")

    def _start(self, machines: Sequence[Machine], suite: str) -> None:
        """Boot all ``machines`` that don't run, some at once, and wait for all of them."""
        self._note([*self.members(), *(m for m in machines if m not in self.members())])
        self._describe()
        if kernel.raise_watches(_WATCHES):
            self._print_line(f"this machine's {kernel.WATCHES_NAME} is {_WATCHES} now")
        self.network.up()
        access.make_key(self.folders)
        access.make_token_keys(self.folders)
        access.make_secret(self.folders)
        access.write_topics(self.folders)
        running = self.machines.running()
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(lambda m: self._start_one(m, suite, m.name not in running), machines))
        forwards = forwards_of(self.members(), self._notes()["port_base"])
        open_forwards(self.network, forwards, self.folders.top / "forwards.log")

    def _describe(self) -> None:
        """Write the list of machines for newsfabric's own commands."""
        forwards = forwards_of(self.members(), 0).items()
        frontdesks = {region: f"{self._scheme()}://{hosts[0]}" for region, (_, hosts) in forwards}
        access.write_hosts(self.folders, self.members(), frontdesks)

    def _scheme(self) -> str:
        return "https" if self.folders.certs.exists() else "http"

    def _start_one(self, one: Machine, suite: str, start: bool) -> None:
        if start:
            self.machines.start(one, suite, self.image(suite).layers())
            access.write_ssh_config(self.folders, self.network, self.machines.host_keys())
        state = access.wait_until_up(
            self.folders, one, _BOOT_SECONDS, lambda: one.name in self.machines.running()
        )
        if start or state != "running":
            self._print_line(f"{one.name} {one.address} is {state}")

    def _known(self, names: Iterable[str]) -> list[Machine]:
        chosen = [machine(name) for name in names]
        for one in chosen:
            if one not in self.members():
                raise FleetError(f"{one.name} is not in this fleet: `python -m fleet status`")
        return chosen

    def _notes(self) -> dict[str, Any]:
        notes: dict[str, Any] = {"machines": [], "port_base": PORT_BASE, "suite": DEFAULT_SUITE}
        with contextlib.suppress(FileNotFoundError):
            notes |= json.loads(self.folders.notes.read_text())
        return notes

    def _note(
        self,
        machines: Iterable[Machine],
        *,
        suite: str | None = None,
        port_base: int | None = None,
    ) -> None:
        notes = self._notes() | {"machines": [m.name for m in machines]}
        notes["suite"] = suite or notes["suite"]
        if port_base is not None:
            notes["port_base"] = port_base
        new = self.folders.notes.with_suffix(".new")
        new.write_text(json.dumps(notes, indent=1) + "\n")
        new.rename(self.folders.notes)


def _state(name: str, running: Container[str], disks: Container[str]) -> str:
    if name in running:
        return "up"
    return "off" if name in disks else "no disk"
