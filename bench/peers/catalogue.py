"""All peers, the way their readers speak, and the checks that they are installed."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Final

from bench.box import subscribe_verb
from bench.peers.servers import MERCURE, Server, lines_to, mercure, nchan, newsfabric, topic_name
from bench.programs import ROOT

_TOOLS: Final = ROOT / ".tools" / "peers"
_PROGRAMS: Final = Path(__file__).with_name("programs")
_PYTHON: Final = _TOOLS / "bin" / "python"
_MODULES: Final = _TOOLS / "node_modules"
_MERCURE: Final = ROOT / ".tools" / "mercure" / "mercure"
_NCHAN: Final = Path("/usr/lib/nginx/modules/ngx_nchan_module.so")
_INSTALL: Final = "`scripts/setup peers` installs it"


@dataclasses.dataclass(frozen=True, slots=True)
class Peer:
    """A server to compare.

    ``path`` and ``say`` are the crowd's: where it connects, and the lines that each reader then
    sends, a frame for each, with a reply to each; ``%t`` is the number of the reader's topic.
    Readers with Server-Sent Events (``events``) instead of WebSocket send nothing, and receive
    ``answers`` events before any message. ``running`` is called with True to compress messages,
    only for peers that can (``deflates``). ``missing`` returns why the peer can't run, or None.
    """

    name: str
    running: Callable[[bool], AbstractAsyncContextManager[Server]]
    missing: Callable[[], str | None]
    say: str = "%t"
    path: str = "/websocket"
    deflates: bool = False
    events: bool = False
    answers: int = 0


def _node(
    name: str, package: str, path: str = "/websocket", say: str = "%t", *, deflates: bool = False
) -> Peer:
    environment = {"NODE_PATH": str(_MODULES), "NODE_ENV": "production"}
    command = ["node", str(_PROGRAMS / f"{name}.js")]
    there = _MODULES / package

    def missing() -> str | None:
        if shutil.which("node") is None:
            return "node isn't on the PATH"
        return None if there.is_dir() else f"{package} isn't there: {_INSTALL}"

    def running(compressed: bool) -> AbstractAsyncContextManager[Server]:
        return lines_to(command, environment, deflates=compressed)

    return Peer(name, running, missing, say, path, deflates)


def _python(
    name: str, package: str, path: str = "/websocket", say: str = "%t", *, deflates: bool = False
) -> Peer:
    command = [str(_PYTHON), str(_PROGRAMS / f"{name.replace('-', '_')}_server.py")]

    def missing() -> str | None:
        found = any(_TOOLS.glob(f"lib/python3*/site-packages/{package}"))
        return None if found else f"{package} isn't there: {_INSTALL}"

    def running(compressed: bool) -> AbstractAsyncContextManager[Server]:
        return lines_to(command, deflates=compressed)

    return Peer(name, running, missing, say, path, deflates)


def _no_nchan() -> str | None:
    if shutil.which("nginx") is None or not _NCHAN.exists():
        return f"nginx with its module nchan isn't there: {_INSTALL}"
    return None


#: sockjs begins with a frame of its own; the second line, which needs no reply, accounts for it.
_SOCKJS: Final = "/sockjs/000/bench/websocket", '["%t"]\n[""]'
#: Engine.IO does so too; its second line (6) is a packet without effect.
_SOCKET_IO: Final = "/socket.io/?EIO=4&transport=websocket&topic=%t", "40\n6"
OURS: Final = "newsfabric"
OUR_OTHERS: Final = ("newsfabric-tornado", "newsfabric-sse")
PEERS: Final = (
    Peer(
        OURS,
        lambda _: newsfabric("native"),
        lambda: None,
        say=subscribe_verb(topic_name("%t")),
        deflates=True,
    ),
    Peer(
        "newsfabric-tornado",
        lambda _: newsfabric("tornado"),
        lambda: None,
        say=subscribe_verb(topic_name("%t")),
    ),
    Peer(
        "newsfabric-sse",
        lambda _: newsfabric("native"),
        lambda: None,
        say="",
        path=f"/events?topic={topic_name('%t')}",
        events=True,
        answers=1,
    ),
    Peer(
        "nchan",
        lambda compressed: nchan(_NCHAN, deflates=compressed),
        _no_nchan,
        say="",
        path="/subscribe?topic=%t",
        deflates=True,
    ),
    Peer(
        "mercure",
        lambda _: mercure([str(_MERCURE)]),
        lambda: None if _MERCURE.exists() else f"Mercure isn't there: {_INSTALL}",
        say="",
        path=f"{MERCURE}?topic=%t",
        events=True,
    ),
    _python("picows", "picows"),
    _node("ws", "ws", deflates=True),
    _node("socket.io", "socket.io", *_SOCKET_IO, deflates=True),
    _node("sockjs-node", "sockjs", *_SOCKJS),
    _python("tornado", "tornado", deflates=True),
    _python("sockjs-tornado", "sockjs", *_SOCKJS),
)
