"""The templates of systemd's units in deploy/ansible."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import yaml

from newsfabric.kinds import KINDS, CoreKind, word

ROLES: Final = Path(__file__).resolve().parents[2] / "deploy" / "ansible" / "roles"
DENIED: Final = "IPAddressDeny=169.254.169.254/32 fd00:ec2::254/128"
_DENIED: Final = re.compile(rf"^(?:{re.escape(DENIED)}|IPAddressDeny=any)$", re.MULTILINE)


def units() -> dict[str, str]:
    """Return each template of a service's unit, or of an addition to one: ``ROLE/FILE`` -> text.

    Units of a machine that carries hosts are left out: they make networks and containers, so they
    must run as root, and they listen to no client.
    """
    return {
        f"{file.parts[-3]}/{file.name}": text
        for file in sorted(ROLES.glob("*/templates/*"))
        if re.search(r"^\[Service\]$", text := file.read_text(), re.MULTILINE)
        and file.parts[-3] != "machine"
    }


def core_unit(kind: CoreKind) -> str:
    """Return the name of the unit of ``kind``, without an instance."""
    return f"newsfabric-{word(kind)}" + ("@" if KINDS[kind].several else "")


def reaches_metadata(unit: str) -> bool:
    """Return whether a unit's service may act in the name of the machine's role in AWS."""
    return not _DENIED.search(unit)


def written(folder: Path, play: list[dict[str, Any]]) -> Path:
    """Write ``play`` into a file that finds the roles beside it, as playbooks do."""
    (folder / "roles").symlink_to(ROLES)
    (folder / "playbooks").mkdir()
    file = folder / "playbooks" / "play.yml"
    file.write_text(yaml.safe_dump(play))
    return file
