"""Running Ansible's playbooks on the fleet."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from fleet.errors import FleetError
from fleet.folders import CHECKOUT, Folders

ANSIBLE: Final = CHECKOUT / "deploy/ansible"
PLAYBOOKS: Final = ANSIBLE / "playbooks"
INVENTORY: Final = ANSIBLE / "inventories/fleet"
#: The variable that names the fleet's folder to the inventory.
FOLDER_VARIABLE: Final = "NEWSFABRIC_FLEET_FOLDER"
#: The playbook that makes a fabric of new machines; its last step checks every part.
DEPLOYMENT: Final = "site.yml"


def ansible_playbook() -> str:
    """Return the program, from the project's own tools or the PATH. FleetError without one."""
    own = CHECKOUT / ".tools/ansible/bin/ansible-playbook"
    found = str(own) if own.exists() else shutil.which("ansible-playbook")
    if found is None:
        raise FleetError("no ansible-playbook: `scripts/setup ansible` installs it in .tools")
    return found


def command(playbook: Path, inventory: Path, options: Sequence[str] = ()) -> list[str]:
    """Return the command line that runs a playbook."""
    config = f"ANSIBLE_CONFIG={ANSIBLE / 'ansible.cfg'}"
    program = ansible_playbook()
    # On this machine, modules use its interpreter, and find its other programs on the PATH.
    path = f"PATH={Path(program).parent}:{os.environ.get('PATH', os.defpath)}"
    return ["env", config, path, program, "--inventory", str(inventory), str(playbook), *options]


def play(folders: Folders, name: str, options: Sequence[str] = ()) -> None:
    """Run one of the playbooks on the fleet, in front of the user. FleetError if it fails."""
    playbook = PLAYBOOKS / name
    if not playbook.is_file():
        known = ", ".join(sorted(path.name for path in PLAYBOOKS.glob("*.yml")))
        raise FleetError(f"no playbook {name} in deploy/ansible/playbooks; there are: {known}")
    words = command(playbook, INVENTORY, options)
    code = subprocess.run(words, env=environment(folders), check=False).returncode
    if code != 0:
        raise FleetError(f"{name} failed (exit code {code}); after a change give it again")


def scale_out(
    folders: Folders, boxes: Sequence[str], options: Sequence[str] = ()
) -> subprocess.Popen[bytes]:
    """Start scale-out-retail.yml in the background, to make boxes of machines that have booted.

    It takes a minute, and the scaler's driver waits 25 s. Each run waits for the one before; their
    output is in ``folders.scale_out_log``. A machine that doesn't become a box in time is ended by
    the scaler, like any machine that fails. Return the process, for callers that wait.
    """
    words = command(
        PLAYBOOKS / "scale-out-retail.yml",
        INVENTORY,
        ["--extra-vars", f"boxes={','.join(boxes)}", *options],
    )
    with folders.scale_out_log.open("a") as log:
        return subprocess.Popen(
            ["flock", folders.scale_out_log, *words],
            env=environment(folders),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def environment(folders: Folders) -> dict[str, str]:
    """Return the environment in which a playbook finds the fleet of ``folders``."""
    return os.environ | {FOLDER_VARIABLE: str(folders.top)}
