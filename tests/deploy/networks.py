"""Linux networks on this machine: namespaces with addresses of their own, joined by cables."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import pytest

# Sends to each client the address that it came from.
_LISTEN: Final = """
import socket, sys
with socket.create_server(("0.0.0.0", int(sys.argv[1]))) as server:
    print("listens", flush=True)
    while True:
        connection, (address, _) = server.accept()
        with connection:
            connection.sendall(address.encode())
"""
_ASK: Final = """
import socket, sys
try:
    with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=1) as connection:
        connection.settimeout(60)
        print(connection.recv(99).decode())
except (TimeoutError, OSError):
    pass
"""
# Prints the source of the first packet.
_HEAR: Final = """
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
    server.bind(("0.0.0.0", int(sys.argv[1])))
    print("listens", flush=True)
    print(server.recvfrom(99)[1][0], flush=True)
"""
_SEND: Final = """
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
    sender.sendto(b"x", (sys.argv[1], int(sys.argv[2])))
"""


@dataclasses.dataclass
class Networks:
    """Namespaces, by names that a test chooses."""

    _prefix: str
    _cables: Iterator[int] = dataclasses.field(default_factory=itertools.count)

    def run(self, where: str, command: str) -> str:
        """Return the output of a command in a namespace; the command must succeed."""
        return self._run(where, shlex.split(command))

    def joined(self, one: str, address: str, other: str, others: str) -> None:
        """Join two namespaces by a cable, with an address at each end."""
        cable = next(self._cables)
        ends = (one, f"c{cable}a", address), (other, f"c{cable}b", others)
        self._cable(*[(where, name) for where, name, _ in ends])
        for where, name, its in ends:
            self.run(where, f"ip address add {its} dev {name}")

    def bridged(self, machine: str, bridge: str, host: str, address: str) -> None:
        """Join a machine's bridge and a host by a cable."""
        port = f"c{next(self._cables)}a"
        self._cable((machine, port), (host, "host0"))
        self.run(machine, f"ip link set {port} master {bridge}")
        self.run(host, f"ip address add {address} dev host0")

    def tunnel(self, where: str, local: str, remote: str, address: str, *, to: str) -> None:
        """Make a tunnel like those of machines, through which ``where`` reaches the host ``to``."""
        host0 = self.run(to, "ip -brief link show host0").split()[2]
        [reached] = self.run(to, "ip -4 -brief address show host0").split()[2:]
        target = reached.partition("/")[0]
        for command in (
            f"ip link add nf-tunnel type vxlan id 77 dstport 4789 local {local} remote {remote}",
            f"ip address add {address} dev nf-tunnel",
            "ip link set nf-tunnel up",
            f"ip route add {target}/32 dev nf-tunnel src {address.partition('/')[0]}",
            f"ip neighbour add {target} lladdr {host0} dev nf-tunnel",
        ):
            self.run(where, command)

    @contextlib.contextmanager
    def listens(self, where: str, port: int) -> Iterator[None]:
        """Run a server in a namespace, on each of its addresses."""
        with self._program(where, _LISTEN, port):
            yield

    def asks(self, where: str, address: str, port: int) -> str | None:
        """Connect; return the client's address as the server sees it; None without a connection."""
        output = self._run(where, (sys.executable, "-c", _ASK, address, str(port)))
        return output.strip() or None

    @contextlib.contextmanager
    def hears(self, where: str, port: int) -> Iterator[Callable[[], str]]:
        """Yield a function that waits for the first packet at a port, and returns its source."""
        with self._program(where, _HEAR, port) as program:
            assert program.stdout is not None
            yield lambda out=program.stdout: out.readline().strip()  # type: ignore[misc]

    def sends(self, where: str, address: str, port: int) -> None:
        """Send a UDP packet."""
        self._run(where, (sys.executable, "-c", _SEND, address, str(port)))

    def _run(self, where: str, words: Sequence[str]) -> str:
        done = subprocess.run(self._words(where, words), capture_output=True, text=True)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout

    def _cable(self, one: tuple[str, str], other: tuple[str, str]) -> None:
        (where, name), (there, peer) = one, other
        kind = f"type veth peer name {peer} netns {self._prefix + there}"
        self.run(where, f"ip link add {name} {kind}")
        for at, end in (one, other):
            self.run(at, f"ip link set {end} up")

    @contextlib.contextmanager
    def _program(self, where: str, text: str, port: int) -> Iterator[subprocess.Popen[str]]:
        words = self._words(where, (sys.executable, "-c", text, str(port)))
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as program:
            try:
                assert program.stdout is not None
                assert program.stdout.readline() == "listens\n"
                yield program
            finally:
                program.kill()

    def _words(self, where: str, words: Sequence[str]) -> list[str]:
        return ["ip", "netns", "exec", self._prefix + where, *words]


@contextlib.contextmanager
def made(names: Sequence[str]) -> Iterator[Networks]:
    """Yield namespaces that have only loopback; skip the test where that isn't allowed."""
    if shutil.which("nft") is None or shutil.which("bridge") is None:
        pytest.skip("no nft or bridge here")
    prefix = f"nf-test-{os.getpid()}-"
    with contextlib.ExitStack() as stack:
        for name in names:
            added = subprocess.run(["ip", "netns", "add", prefix + name], capture_output=True)
            if added.returncode:
                pytest.skip("only root makes networks")
            stack.callback(subprocess.run, ["ip", "netns", "delete", prefix + name], check=True)
        found = Networks(prefix)
        for name in names:
            found.run(name, "ip link set lo up")
        yield found
