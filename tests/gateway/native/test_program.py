"""The paths of the data plane's program and of its control socket."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from gateway.native.program import control_socket, find_program
from gateway.process.settings import GatewaySettings, NativeSettings
from newsfabric.errors import ConfigError, SetupError


def test_the_variable_names_the_program(tmp_path: Path) -> None:
    program = tmp_path / "dataplane"
    program.write_text("#!/bin/sh\n")
    with pytest.raises(SetupError, match="make dataplane"):
        find_program({"NEWSFABRIC_DATAPLANE": str(program)})
    program.chmod(0o755)
    assert find_program({"NEWSFABRIC_DATAPLANE": str(program)}) == program


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def settings_of(port: int, socket: Path | None = None) -> GatewaySettings:
    native = NativeSettings(socket=socket)
    return GatewaySettings(name="box", region="oregon", port=port, native=native)


def test_a_port_always_has_the_same_socket(temporary: Path) -> None:
    assert (
        control_socket(settings_of(8080))
        == control_socket(settings_of(8080))
        != control_socket(settings_of(8081))
    )
    assert control_socket(settings_of(8080)).parent.stat().st_mode & 0o777 == 0o700


def test_any_port_has_a_new_socket(temporary: Path) -> None:
    assert control_socket(settings_of(0)) != control_socket(settings_of(0))


def test_a_reported_socket_is_taken(tmp_path: Path) -> None:
    assert control_socket(settings_of(0, tmp_path / "s")) == tmp_path / "s"


def test_a_folder_that_others_can_write_is_refused(temporary: Path) -> None:
    folder = temporary / f"newsfabric-{os.getuid()}"
    folder.mkdir(mode=0o755)
    folder.chmod(0o777)
    with pytest.raises(ConfigError, match="0700"):
        control_socket(settings_of(8080))
