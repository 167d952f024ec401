"""A machine: its disk, its boot, its end.

A machine's folder ``.fleet/machines/NAME`` holds its disk: ``upper`` on an image's layers, whose
paths are in ``layers``, and Debian's suite there in ``suite``. It also has the public half of its
host key, and the console's log. A disk outlives a boot: for a new machine of that name, forget the
disk first.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from fleet import cgroups, kernel
from fleet.errors import FleetError
from fleet.folders import Folders
from fleet.image import mount_overlay, unmount
from fleet.network import Network, bridge_of
from fleet.plan import Machine, hosts_file, network_of
from fleet.run import run

HOST_KEY: Final = "etc/ssh/ssh_host_ed25519_key"
_KILL_SECONDS: Final = 15


class Machines:
    """The machines whose disks are in ``folders``, in ``network``."""

    def __init__(self, folders: Folders, network: Network) -> None:
        self._folders = folders
        self._network = network

    def running(self) -> dict[str, kernel.MachineProcesses]:
        """Return the processes of each running machine, by name."""
        return kernel.machine_processes(self._folders.machines)

    def with_disks(self) -> list[str]:
        """Return the machines that have a disk, running or not."""
        if not self._folders.machines.is_dir():
            return []
        return sorted(p.name for p in self._folders.machines.iterdir() if (p / "layers").exists())

    def suite_of(self, name: str) -> str | None:
        """Return Debian's suite on the machine's disk; None without a disk."""
        folder = self._folders.of(name)
        return (folder / "suite").read_text() if (folder / "layers").exists() else None

    def layers_used(self) -> set[Path]:
        """Return the image's layers that disks lie on."""
        return {
            Path(line)
            for name in self.with_disks()
            for line in (self._folders.of(name) / "layers").read_text().splitlines()
        }

    def start(self, machine: Machine, suite: str, layers: Sequence[Path]) -> None:
        """Boot a machine that doesn't run; one without a disk gets ``suite``'s, on ``layers``."""
        folder = self._folders.of(machine.name)
        if not (folder / "layers").exists():
            self._make_disk(machine, suite, layers)
        if not kernel.is_mount(folder / "root"):
            used = [Path(line) for line in (folder / "layers").read_text().splitlines()]
            # The kernel's work folder of an overlay that was not unmounted must not be used again.
            shutil.rmtree(folder / "work", ignore_errors=True)
            (folder / "work").mkdir()
            mount_overlay(used, folder / "upper", folder / "work", folder / "root")
        self._boot(machine)

    def power_off(self, names: Sequence[str], seconds: float) -> list[str]:
        """Ask these to power off and wait; return the names of those that had to be killed."""
        running = self.running()
        asked = {name: running[name] for name in names if name in running}
        for box in asked.values():
            if box.init is not None:
                kernel.kill(box.init, kernel.POWER_OFF)
        late = [name for name, box in asked.items() if not kernel.wait_gone(box.pids, seconds)]
        self.pull_plug(late)
        for name in names:
            unmount(self._folders.of(name))
        return late

    def pull_plug(self, names: Sequence[str]) -> None:
        """End these at once, as a power cut does. Data that were not on the disk are lost.

        FleetError if a process of theirs doesn't end.
        """
        running = self.running()
        boxes = [running[name] for name in names if name in running]
        for box in boxes:
            # The kernel ends all of a machine with its init; the supervisor then tidies up.
            kernel.kill(box.pids[0])
        late = [box for box in boxes if not kernel.wait_gone(box.pids, _KILL_SECONDS)]
        for box in late:
            if box.supervisor is not None:
                kernel.kill(box.supervisor)
        if not all(kernel.wait_gone(box.pids, _KILL_SECONDS) for box in late):
            raise FleetError("a machine's processes don't end: look for ones in state D")
        for name in names:
            unmount(self._folders.of(name))

    def forget(self, name: str) -> None:
        """Delete the disk of a machine that doesn't run."""
        if self._folders.of(name).exists():
            unmount(self._folders.of(name))
            shutil.rmtree(self._folders.of(name))

    def host_keys(self) -> dict[str, str]:
        """Return the public host key of each machine with a disk, by name."""
        return {
            name: (self._folders.of(name) / "host_key.pub").read_text()
            for name in self.with_disks()
        }

    def _make_disk(self, machine: Machine, suite: str, layers: Sequence[Path]) -> None:
        """Make a disk, with the facts that a cloud gives a new machine: name, address, keys."""
        self.forget(machine.name)
        folder = self._folders.of(machine.name)
        upper = folder / "upper"
        for part in ("root", "upper/etc/systemd/network", "upper/etc/ssh", "upper/root/.ssh"):
            (folder / part).mkdir(parents=True)
        for private in (folder, upper / "root", upper / "root/.ssh"):
            private.chmod(0o700)
        upper.chmod(0o755)
        (upper / "etc/hostname").write_text(f"{machine.name}\n")
        (upper / "etc/hosts").write_text(hosts_file(machine.name))
        # 10-: before systemd's own 80-container-host0.network, which takes a link-local address.
        (upper / "etc/systemd/network/10-fleet.network").write_text(
            f"[Match]\nName=host0\n\n[Network]\nAddress={machine.address}/24\n"
            f"Gateway={network_of(machine.region)}.1\nLinkLocalAddressing=no\n"
        )
        run(
            "ssh-keygen",
            "-q",
            "-t",
            "ed25519",
            "-N",
            "",
            "-C",
            machine.name,
            "-f",
            upper / HOST_KEY,
        )
        shutil.copyfile(upper / f"{HOST_KEY}.pub", folder / "host_key.pub")
        shutil.copyfile(f"{self._folders.key}.pub", upper / "root/.ssh/authorized_keys")
        (folder / "suite").write_text(suite)
        # Last: a disk without this file is none.
        (folder / "layers").write_text("".join(f"{layer}\n" for layer in layers))

    def _boot(self, machine: Machine) -> None:
        folder = self._folders.of(machine.name)
        alone = not cgroups.systemd_runs()
        command = self._network.within(
            "systemd-nspawn",
            "--quiet",
            "--boot",
            f"--directory={folder / 'root'}",
            f"--machine={self._network.name}-{machine.name}",
            f"--hostname={machine.name}",
            f"--network-bridge={bridge_of(machine.region)}",
            "--resolv-conf=off",
            "--timezone=off",
            "--link-journal=no",
            "--register=no",
            # Without systemd on the host, no one can give the machine a unit.
            *(["--keep-unit"] if alone else []),
        )
        if alone:
            groups = cgroups.make(self._network.name, machine.name)
            command = (*cgroups.entering(groups), *command)
        with self._folders.console(machine.name).open("ab") as console:
            # It outlives this program, so it is not this program's child.
            subprocess.run(
                ["setsid", "--fork", *command],
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                env={"PATH": os.environ.get("PATH", os.defpath)},
                check=True,
            )
