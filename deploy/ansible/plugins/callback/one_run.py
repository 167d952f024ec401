"""Identifies a run, and releases its locks when it ends.

Role ``lock`` locks each host of a run that makes changes. Ansible has no task that runs also when a
playbook fails, so this plugin does it. ``ansible-playbook`` may end by itself, by a failure or by
Ctrl-C: then each command that role ``lock`` has left in the statistics of a host is run here. A run
that is killed releases nothing: see roles/lock/tasks/take.yml.

Hosts are not trusted: a compromised host can return anything, statistics too. So only those of
``set_stats``, which no host can influence, are run as commands.
"""

from __future__ import annotations

import atexit
import getpass
import hashlib
import json
import os
import platform
import shlex
import subprocess
import uuid
from pathlib import Path
from typing import Any

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: one_run
type: aggregate
short_description: says whose run this is, and gives back what it holds when it ends
description: See roles/lock.
"""

#: The run's description for its tasks: a JSON object.
VARIABLE = "NEWSFABRIC_RUN"
#: The name of a command in a host's statistics (``set_stats``).
COMMAND = "newsfabric_give_back"
#: The only action whose statistics are written here.
SHOWN_ACTION = "ansible.builtin.set_stats"
#: A host that doesn't reply in this time stays locked.
SECONDS = 30


class CallbackModule(CallbackBase):
    """The callback; one instance for each run."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "one_run"

    def __init__(self) -> None:
        super().__init__()
        self._commands: list[str] = []

    def v2_playbook_on_start(self, playbook: Any) -> None:
        """Put the run into the environment, which tasks share with this process."""
        run = {
            "id": uuid.uuid4().hex[:12],
            "who": f"{getpass.getuser()}@{platform.node()}",
            "playbook": os.path.basename(playbook._file_name),
            "machine": this_machine(),
            "pid": os.getpid(),
        }
        os.environ[VARIABLE] = json.dumps(run)
        atexit.register(self._give_back)

    def v2_runner_on_ok(self, result: Any) -> None:
        """Remember the command for a host at the end."""
        if result._task.resolved_action != SHOWN_ACTION:
            return
        data = result._result.get("ansible_stats", {}).get("data", {})
        if COMMAND in data:
            self._commands.append(str(data[COMMAND]))

    def _give_back(self) -> None:
        # All at once: a silent host doesn't delay the others.
        begun = [
            subprocess.Popen(
                shlex.split(command),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            for command in self._commands
        ]
        for process in begun:
            try:
                process.wait(SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


def this_machine() -> str:
    """Return an identifier of this machine, whatever its name."""
    try:
        known = Path("/etc/machine-id").read_text()
    except OSError:
        known = ""
    seen = f"{platform.node()} {uuid.getnode()} {known}"
    return hashlib.sha256(seen.encode()).hexdigest()[:12]
