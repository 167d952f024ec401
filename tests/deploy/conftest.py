"""Ansible's programs for the tests, and the playbooks' own program that makes logins."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
_LOGINS: Final = ROOT / "deploy/ansible/roles/cassandra/files/store_login.py"


def program(name: str) -> str:
    """Return the path of one of Ansible's programs; without it, skip the test or fail in CI."""
    own = ROOT / ".tools" / "ansible" / "bin" / name
    found = str(own) if own.exists() else shutil.which(name)
    if found is None:
        why = f"no {name} in .tools/ansible or on the PATH"
        if "CI" in os.environ:
            pytest.fail(why)
        pytest.skip(why)
    return found


# Not for a session: then tests/support/spreading.py lets one worker run all of Ansible's tests.
@pytest.fixture(scope="module")
def playbook() -> str:
    """Return the path of ``ansible-playbook``."""
    return program("ansible-playbook")


@pytest.fixture(scope="module", autouse=True)
def one_process_for_each_task() -> Iterator[None]:
    """Have Ansible pass modules to this machine's Python by a pipe, as over ssh, not in files."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ANSIBLE_PIPELINING", "1")
        yield


@pytest.fixture(scope="module")
def inventory() -> str:
    """Return the path of ``ansible-inventory``."""
    return program("ansible-inventory")


@pytest.fixture(scope="module")
def store_login() -> ModuleType:
    """Load the program that playbooks run at a store node to make its logins."""
    spec = importlib.util.spec_from_file_location("store_login", _LOGINS)
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found
