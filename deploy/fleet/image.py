"""The images that machines are made of, one for each suite of Debian: two layers each, below
``.fleet/layers``.

``base-KEY`` is Debian by debootstrap. ``image-KEY`` has the additions of the playbook
``build-image.yml``, as an overlay. A KEY is a digest of all that the layer depends on: an existing
layer is up to date, and an unfinished one has another name. Machines have no access to the
Internet, so their packages are in the image.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from fleet import kernel
from fleet.folders import CHECKOUT, Folders
from fleet.playbooks import ANSIBLE, PLAYBOOKS, command
from fleet.run import run, run_logged

#: Suites of Debian that a machine may have, and the default of a fleet.
SUITES: Final = ("bookworm", "trixie", "sid")
DEFAULT_SUITE: Final = "trixie"
# Sid has no updates beside it, and a mirror's copy may be older than its Release file allows.
_UNSTABLE: Final = "sid"
PACKAGES: Final = (
    "ca-certificates",
    "dbus",
    # For a machine that carries hosts (roles/machine).
    "haproxy",
    "iproute2",
    "nftables",
    "openssh-server",
    "procps",
    "python3",
    "python3-apt",
    "systemd",
    "systemd-container",
    "systemd-sysv",
)
PLAYBOOK: Final = PLAYBOOKS / "build-image.yml"
# Sources of the installation, below deploy/ansible. Configuration and another release are brought
# to each machine by site.yml: no reason to make the image anew.
_SOURCES: Final = (
    "playbooks/build-image.yml",
    *(f"roles/{role}/tasks/install.yml" for role in ("base", "rabbitmq", "cassandra")),
    "roles/observability/tasks/install.yml",
)
_MIRROR: Final = "http://deb.debian.org/debian"
_SECURITY: Final = "http://deb.debian.org/debian-security"
_URL: Final = re.compile(r"https?://[^\s\]]+")
# A new number makes new layers: raise it when _prepare or _open_for_building changes.
_VERSION: Final = 1
_DEBOOTSTRAP_SECONDS: Final = 1800
_PLAYBOOK_SECONDS: Final = 3600

PrintLine = Callable[[str], None]


class Image:
    """The layers of Debian's ``suite`` in ``folders``."""

    def __init__(self, folders: Folders, suite: str, print_line: PrintLine) -> None:
        self._folders = folders
        self._suite = suite
        self._print_line = print_line
        self._mirror = mirror("debian", _MIRROR)
        self._security = mirror("debian-security", _SECURITY)

    def layers(self) -> tuple[Path, ...]:
        """Return the folders that a machine's disk lies on, uppermost first."""
        base = self._folders.layers / f"base-{self._base_key()}"
        if not PLAYBOOK.exists():
            return (base,)
        return self._folders.layers / f"image-{self._image_key()}", base

    @property
    def ready(self) -> bool:
        """True if no layer is missing."""
        return all(layer.is_dir() for layer in self.layers())

    def build_base(self) -> None:
        """Make Debian alone, if it is missing."""
        if not (base := self.layers()[-1]).is_dir():
            self._clear()
            self._build_base(base)

    def build(self) -> bool:
        """Make the missing layers; return whether there were any."""
        self._clear()
        missing = [layer for layer in self.layers() if not layer.is_dir()]
        for layer in reversed(missing):
            if layer.name.startswith("base-"):
                self._build_base(layer)
            else:
                self._build_image(layer, self.layers()[-1])
        return bool(missing)

    def sources(self) -> str:
        """Return apt's ``sources.list`` for a machine of the suite."""
        archives = [(self._mirror, self._suite)]
        if self._suite != _UNSTABLE:
            archives.append((self._mirror, f"{self._suite}-updates"))
            archives.append((self._security, f"{self._suite}-security"))
        return "".join(f"deb {mirror} {suite} main\n" for mirror, suite in archives)

    def _base_key(self) -> str:
        return _digest([_VERSION, self._suite, PACKAGES, self._mirror, self._security])

    def _image_key(self) -> str:
        return _digest([self._base_key(), _contents(ANSIBLE / name for name in _SOURCES)])

    def _build_base(self, layer: Path) -> None:
        self._print_line(f"Debian {self._suite} by debootstrap from {self._mirror} (a few minutes)")
        new = self._folders.build / "base"
        include = f"--include={','.join(PACKAGES)}"
        run_logged(
            ["debootstrap", "--variant=minbase", include, self._suite, new, self._mirror],
            self._folders.top / "image.log",
            seconds=_DEBOOTSTRAP_SECONDS,
        )
        self._prepare(new)
        layer.parent.mkdir(exist_ok=True)
        new.rename(layer)

    def _prepare(self, root: Path) -> None:
        """Add the parts that an image needs, and delete those that it mustn't have."""
        (root / "etc/machine-id").write_text("")
        for key in (root / "etc/ssh").glob("ssh_host_*"):
            key.unlink()
        wants = root / "etc/systemd/system/multi-user.target.wants"
        wants.mkdir(parents=True, exist_ok=True)
        (wants / "systemd-networkd.service").symlink_to(
            "/lib/systemd/system/systemd-networkd.service"
        )
        (root / "etc/apt/sources.list").write_text(self.sources())
        if self._suite == _UNSTABLE:
            settings = root / "etc/apt/apt.conf.d/80fleet"
            settings.write_text('Acquire::Check-Valid-Until "false";\n')
        for archive in (root / "var/cache/apt/archives").glob("*.deb"):
            archive.unlink()

    def _build_image(self, layer: Path, base: Path) -> None:
        playbook = PLAYBOOK.relative_to(CHECKOUT)
        self._print_line(f"the image of {self._suite}, by {playbook} in a chroot (some minutes)")
        parts = {name: self._folders.build / name for name in ("upper", "work", "root")}
        for part in parts.values():
            part.mkdir(parents=True)
        mount_overlay((base,), parts["upper"], parts["work"], parts["root"])
        try:
            _open_for_building(parts["root"])
            self._run_playbook(parts["root"])
            _close_after_building(parts["root"])
        finally:
            unmount(self._folders.build)
        parts["upper"].rename(layer)

    def _run_playbook(self, root: Path) -> None:
        inventory = self._folders.build / "inventory.json"
        host = {"ansible_connection": "community.general.chroot", "ansible_host": str(root)}
        inventory.write_text(json.dumps({"image": {"hosts": {"image": host}}}, indent=1))
        run_logged(
            command(PLAYBOOK, inventory),
            self._folders.top / "image.log",
            seconds=_PLAYBOOK_SECONDS,
        )

    def _clear(self) -> None:
        """Remove the remains of an interrupted build."""
        unmount(self._folders.build)
        if self._folders.build.exists():
            shutil.rmtree(self._folders.build)
        self._folders.build.mkdir(parents=True)


def forget_others(folders: Folders, used: Iterable[Path]) -> None:
    """Delete the layers that are neither an image's nor ``used``."""
    if folders.layers.is_dir():
        images = [Image(folders, suite, print) for suite in SUITES]
        wanted = {layer for image in images for layer in image.layers()}
        for layer in set(folders.layers.iterdir()) - {*wanted, *used}:
            shutil.rmtree(layer)


def mirror(kind: str, default: str, apt: Path = Path("/etc/apt")) -> str:
    """Return this machine's mirror of ``kind`` ("debian", "debian-security"), or ``default``."""
    files = [apt / "sources.list", *sorted((apt / "sources.list.d").glob("*"))]
    for file in files:
        for line in file.read_text(errors="replace").splitlines() if file.is_file() else ():
            for url in _URL.findall(line.partition("#")[0]):
                if url.rstrip("/").rpartition("/")[2] == kind:
                    return str(url).rstrip("/")
    return default


def mount_overlay(lower: Iterable[Path], upper: Path, work: Path, root: Path) -> None:
    """Mount an overlay at ``root``; ``lower``'s first is the uppermost."""
    layers = ":".join(str(layer) for layer in lower)
    options = f"lowerdir={layers},upperdir={upper},workdir={work}"
    run("mount", "-t", "overlay", "-o", options, "fleet", root)


def unmount(folder: Path) -> None:
    """Unmount all that is mounted at ``folder`` or below it."""
    for point in kernel.mounts_below(folder):
        run("umount", point)


def _open_for_building(root: Path) -> None:
    """Prepare a chroot in which apt works, and in which no package starts its service."""
    for kind, point, options in (
        ("proc", "proc", "nosuid,nodev,noexec"),
        ("sysfs", "sys", "ro,nosuid,nodev,noexec"),
        ("tmpfs", "run", "nosuid,nodev,mode=755"),
        ("devpts", "dev/pts", "nosuid,noexec,gid=5,mode=620"),
        ("tmpfs", "dev/shm", "nosuid,nodev,mode=1777"),
    ):
        (root / point).mkdir(exist_ok=True)
        run("mount", "-t", kind, "-o", options, "fleet", root / point)
    policy = root / "usr/sbin/policy-rc.d"
    policy.write_text("#!/bin/sh\nexit 101\n")
    policy.chmod(0o755)
    resolv = root / "etc/resolv.conf"
    resolv.unlink(missing_ok=True)
    shutil.copyfile("/etc/resolv.conf", resolv)
    proxies = (
        run("apt-config", "dump", "--format", '%f "%v";%n', "Acquire")
        if shutil.which("apt-config")
        else ""
    )
    lines = [line for line in proxies.splitlines() if "::Proxy" in line]
    (root / "etc/apt/apt.conf.d/90fleet-build").write_text("\n".join([*lines, ""]))


def _close_after_building(root: Path) -> None:
    """Remove traces of the build from the image: name server, packages, identity."""
    for name in ("usr/sbin/policy-rc.d", "etc/resolv.conf", "etc/apt/apt.conf.d/90fleet-build"):
        (root / name).unlink(missing_ok=True)
    for folder in ("var/lib/apt/lists", "var/cache/apt/archives"):
        for file in (root / folder).glob("*"):
            if file.is_file() and file.name != "lock":
                file.unlink()
    for key in (root / "etc/ssh").glob("ssh_host_*"):
        key.unlink()
    (root / "etc/machine-id").write_text("")


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:12]


def _contents(paths: Iterable[Path]) -> list[tuple[str, str]]:
    """Return each file at or below ``paths`` with the digest of its contents."""
    found = []
    for path in paths:
        for file in sorted([path, *path.rglob("*")]):
            if file.is_file():
                digest = hashlib.sha256(file.read_bytes()).hexdigest()
                found.append((os.fspath(file.relative_to(ANSIBLE)), digest))
    return found
