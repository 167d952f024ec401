"""Status and faults of hosts; ssh runs all commands here, and systemctl only records them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import orjson
import pytest
from click.testing import CliRunner

from operations.cli import cli
from operations.hosts import services_program

# Called as `ssh HOST COMMAND`: oregon-retail-1 is a machine that can't be reached.
SSH = """#!/bin/sh
[ "$1" = oregon-retail-1 ] && { echo 'no route to host' >&2; exit 255; }
export HOST_NAME="$1"; shift; PATH="$(dirname "$0"):$PATH" exec sh -c "$*"
"""
SYSTEMCTL = """#!/bin/sh
case "$1" in
show) cat "$(dirname "$0")/units-$HOST_NAME" ;;
*) echo "$HOST_NAME $*" >>"$(dirname "$0")/done" ;;
esac
"""
COMMAND = '#!/bin/sh\necho "command $*" >>"$(dirname "$0")/done"\n'


def unit(name: str, pid: int, active: str = "active", file: str = "enabled") -> str:
    states = f"LoadState=loaded\nActiveState={active}\nUnitFileState={file}"
    return f"Id={name}.service\n{states}\nMainPID={pid}\n"


def unmet(at: str) -> str:
    """Return a condition that failed when systemd checked it ``at`` µs after boot; 0: unchecked."""
    return f"ConditionResult=no\nConditionTimestampMonotonic={at}\n"


class ScriptedHosts:
    """Two hosts of a region, one of which is away, and a host of a proxy."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name, text in (("ssh", SSH), ("systemctl", SYSTEMCTL), ("command", COMMAND)):
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)
        self.sleeper = subprocess.Popen(["sleep", "600"])
        self.units(
            "oregon-core-1",
            unit("newsfabric-router@1", self.sleeper.pid),
            unit("rabbitmq-server", os.getpid()),
            unit("newsfabric-scaler", 0, "failed"),
            unit("newsfabric-router@", 0, "inactive", "static"),
            unit("newsfabric-gateway", 0, "inactive", "disabled"),
            # A unit for boxes of groups, on a host that isn't one.
            unit("newsfabric-settle", 0, "inactive") + unmet(at="2571096"),
            "Id=cassandra.service\nLoadState=not-found\nActiveState=inactive\nMainPID=0\n",
        )
        self.units("tokyo-proxy-1", unit("rabbitmq-server", os.getpid()))
        program = str(folder / "command")
        document = {
            "ssh": [str(folder / "ssh")],
            "hosts": [
                {"name": "oregon-core-1", "place": "oregon", "part": "core"},
                {"name": "oregon-retail-1", "place": "oregon", "part": "retail"},
                {"name": "tokyo-proxy-1", "place": "tokyo", "part": "proxy"},
            ],
            "frontdesks": {"oregon": "http://10.77.1.21:8080"},
            "commands": {verb: [program, verb] for verb in ("cut", "heal", "kill", "boot")},
        }
        (folder / "hosts.json").write_bytes(orjson.dumps(document))

    def units(self, host: str, *blocks: str) -> None:
        (self.folder / f"units-{host}").write_text("\n".join(blocks))

    def run(self, *words: str) -> str:
        done = CliRunner().invoke(cli, [*words, "--state", str(self.folder)])
        assert done.exit_code == 0, done.output
        return done.output

    def refused(self, *words: str) -> str:
        done = CliRunner().invoke(cli, [*words, "--state", str(self.folder)])
        assert done.exit_code == 1
        return done.output

    def done(self) -> list[str]:
        """Return the actions on hosts, and those of commands, since the last call."""
        path = self.folder / "done"
        lines = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return lines


@pytest.fixture
def fabric(tmp_path: Path) -> Any:
    made = ScriptedHosts(tmp_path)
    yield made
    made.sleeper.kill()
    made.sleeper.wait()


def test_status_has_each_unit_of_each_host(fabric: ScriptedHosts) -> None:
    found = orjson.loads(fabric.run("status", "--json"))
    (oregon,) = found["regions"]
    assert oregon["services"] == [
        {"name": "oregon-core-1/router@1", "pid": fabric.sleeper.pid, "running": True},
        {"name": "oregon-core-1/scaler", "pid": None, "running": False},
        {"name": "oregon-retail-1", "pid": None, "running": False},
    ]
    assert [b["name"] for b in oregon["brokers"]] == ["oregon-core-1/rabbitmq-server"]
    assert oregon["board_url"] == "http://10.77.1.21:8080/board"
    assert found["proxy"]["brokers"][0]["name"] == "tokyo-proxy-1/rabbitmq-server"
    assert found["ready"] is False


def test_status_is_ready_when_all_of_it_is(fabric: ScriptedHosts) -> None:
    document = orjson.loads((fabric.folder / "hosts.json").read_bytes())
    del document["hosts"][1]
    (fabric.folder / "hosts.json").write_bytes(orjson.dumps(document))
    fabric.units("oregon-core-1", unit("newsfabric-router@1", os.getpid()))
    assert orjson.loads(fabric.run("status", "--json"))["ready"] is True


def test_status_for_eyes_names_what_is_dead(fabric: ScriptedHosts) -> None:
    output = fabric.run("status")
    assert "oregon-core-1/scaler" in output
    assert output.count("dead") == 2


@pytest.mark.parametrize(
    ("verb", "number"), [("kill", "SIGKILL"), ("stop", "SIGSTOP"), ("cont", "SIGCONT")]
)
def test_a_unit_is_sent_a_signal(fabric: ScriptedHosts, verb: str, number: str) -> None:
    fabric.run("chaos", verb, "oregon-core-1/router@1")
    assert fabric.done() == [
        f"oregon-core-1 kill --kill-who=main --signal={number} newsfabric-router@1"
    ]


def test_a_machine_is_killed_by_its_plug_and_can_only_be_killed(fabric: ScriptedHosts) -> None:
    assert "tokyo-proxy-1: plug pulled" in fabric.run("chaos", "kill", "tokyo-proxy-1")
    assert fabric.done() == ["command kill tokyo-proxy-1"]
    assert "can be killed only" in fabric.refused("chaos", "stop", "tokyo-proxy-1")


def test_nothing_is_done_when_one_name_is_wrong(fabric: ScriptedHosts) -> None:
    error = fabric.refused("chaos", "kill", "oregon-core-1/router@1", "oregon-core-1/ruoter@1")
    assert "did you mean oregon-core-1/router@1?" in error
    error = fabric.refused("chaos", "kill", "oregon-core-1/router@1", "oregon-core-1/scaler")
    assert "oregon-core-1/scaler is dead" in error
    assert fabric.done() == []


def test_a_place_is_cut_off_by_all_of_its_links(fabric: ScriptedHosts) -> None:
    fabric.run("chaos", "cut", "tokyo", "oregon-tokyo-link")
    assert fabric.done() == ["command cut oregon tokyo"]
    assert "no link 'paris'" in fabric.refused("chaos", "cut", "paris")


def test_heal_without_names_mends_what_is_unwell_and_no_more(fabric: ScriptedHosts) -> None:
    os.kill(fabric.sleeper.pid, signal.SIGSTOP)
    os.waitpid(fabric.sleeper.pid, os.WUNTRACED)
    fabric.run("chaos", "heal")
    assert fabric.done() == [
        "command boot oregon-retail-1",
        "oregon-core-1 kill --kill-who=main --signal=SIGCONT newsfabric-router@1",
        "oregon-core-1 reset-failed newsfabric-scaler",
        "oregon-core-1 start --no-block newsfabric-scaler",
        "command heal oregon tokyo",
    ]


def test_heal_of_what_is_well_does_nothing(fabric: ScriptedHosts) -> None:
    output = fabric.run("chaos", "heal", "oregon-core-1/router@1", "tokyo-proxy-1")
    assert output.count("was well") == 2
    assert fabric.done() == []


def test_top_and_tail_ask_the_frontdesk_that_is_described(fabric: ScriptedHosts) -> None:
    assert "no frontdesk in dublin" in fabric.refused("top", "--region", "dublin")
    assert "no frontdesk in dublin" in fabric.refused("tail", "a", "--region", "dublin")


@contextlib.contextmanager
def answering(server: HTTPServer) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()


def test_a_gateway_is_asked_at_the_admin_port_that_it_was_given(fabric: ScriptedHosts) -> None:
    class GatewayHandler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            replies = {"/load": {"connections": 7, "ready": True}, "/engine": {"engine": "native"}}
            self.send_response(200)
            self.end_headers()
            self.wfile.write(orjson.dumps(replies[self.path]))

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), GatewayHandler) as server, answering(server):
        words = ["sh", "-c", "sleep 600; :", "gateway", "--admin-port", str(server.server_port)]
        with subprocess.Popen(words, start_new_session=True) as gateway:
            try:
                fabric.units("oregon-core-1", unit("newsfabric-gateway", gateway.pid))
                (oregon,) = orjson.loads(fabric.run("status", "--json"))["regions"]
            finally:
                os.killpg(gateway.pid, signal.SIGKILL)
    (found,) = oregon["gateways"]
    assert (found["box"], found["pid"]) == ("oregon-core-1", gateway.pid)
    assert (found["connections"], found["ready"], found["engine"]) == (7, True, "native")


def test_a_process_that_is_gone_has_no_state() -> None:
    with subprocess.Popen(["true"]) as done:
        pass
    assert services_program.process_state(done.pid) is None
    assert services_program.process_state(os.getpid()) == "R"


def test_a_unit_that_was_never_started_is_one_that_should_run() -> None:
    """The unit's condition was never checked."""
    never = unit("newsfabric-router@1", 0, "inactive") + unmet(at="0")
    assert [one["active"] for one in services_program.units(never)] == ["inactive"]
