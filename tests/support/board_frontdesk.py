"""The part of a frontdesk that the operations board uses, with a made-up fabric; also a program.

``python tests/support/board_frontdesk.py --port 8090`` prints its address, and runs until it
is ended. Its Content-Security-Policy is stricter than a frontdesk's: a page that works here works
there.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import json
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

from board_fabric import MadeUpFabric
from tornado.httpserver import HTTPServer
from tornado.iostream import StreamClosedError
from tornado.netutil import bind_sockets
from tornado.web import Application, RequestHandler, StaticFileHandler

PAGES: Final = Path(__file__).parents[2] / "wholesale" / "frontdesk" / "pages" / "files"
POLICY: Final = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
COOKIE: Final = "newsfabric_board"


@dataclasses.dataclass(eq=False)
class BoardFrontdesk:
    """A frontdesk that serves the board, and the changes that a test can make to it.

    With ``token``, requests need a login as ``operator``, by cookie or header. A ``document`` is
    served instead of the fabric's. ``asked`` are the paths and ``shown`` the ``Authorization``
    headers of the requests.
    """

    fabric: MadeUpFabric
    token: str = ""
    operator: str = "ada"
    document: Any = None
    port: int = 0
    streams: set[StreamHandler] = dataclasses.field(default_factory=set)
    sent_bytes: list[int] = dataclasses.field(default_factory=list)
    asked: list[str] = dataclasses.field(default_factory=list)
    shown: list[str | None] = dataclasses.field(default_factory=list)
    server: HTTPServer | None = None
    is_silent: bool = False

    @property
    def url(self) -> str:
        """The frontdesk's URL."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def page_url(self) -> str:
        """The URL of the board's page."""
        return f"{self.url}/board"

    def open(self) -> None:
        """Listen; after :meth:`close` on the same port again."""
        (socket,) = bind_sockets(self.port, "127.0.0.1", reuse_port=True)
        self.port = socket.getsockname()[1]
        self.server = HTTPServer(self._application())
        self.server.add_socket(socket)

    async def close(self) -> None:
        """End all streams and refuse connections, as if the frontdesk died."""
        if self.server is not None:
            self.server.stop()
            await self.server.close_all_connections()
            self.server = None

    async def send(self) -> None:
        """Send an update on every stream."""
        await asyncio.gather(*(stream.update() for stream in list(self.streams)))

    async def show(self, document: Any) -> None:
        """Serve ``document`` from now on, and send it on every stream at once."""
        self.document = document
        await self.send()

    def fall_silent(self) -> None:
        """Keep all connections open, but send nothing on the streams any more."""
        self.is_silent = True
        for stream in self.streams:
            stream.is_silent = True

    def speak(self) -> None:
        """End the silence, for new streams only."""
        self.is_silent = False

    async def live(self, every: float = 1.0) -> None:
        """Move the fabric's clock and send an update every ``every`` seconds, until cancelled."""
        due = time.monotonic()
        while True:
            self.fabric.tick(int(every * 1000))
            await self.send()
            due += every
            await asyncio.sleep(max(0.0, due - time.monotonic()))

    def answer(self, after_seq: int = 0) -> str:
        """Return the document as JSON."""
        made = self.fabric.board_document(after_seq) if self.document is None else self.document
        return json.dumps(made, separators=(",", ":"))

    def _application(self) -> Application:
        files = {"path": PAGES}
        given = {"frontdesk": self}
        return Application(
            [
                (r"/board", BoardFileHandler, files),
                (r"/board\.json", DocumentHandler, given),
                (r"/board/stream", StreamHandler, given),
                (r"/board/plots\.json", PlotsHandler, given),
                (r"/board/login", LoginHandler, given),
                (r"/board/logout", LogoutHandler, given),
                (r"/static/(.+)", FileHandler, files),
            ],
            log_function=lambda handler: self.asked.append(handler.request.path),
        )


class FileHandler(StaticFileHandler):
    """A file, with the headers that the frontdesk gives its pages."""

    def set_default_headers(self) -> None:
        self.set_header("Content-Security-Policy", POLICY)
        self.set_header("X-Content-Type-Options", "nosniff")

    def set_extra_headers(self, path: str) -> None:
        self.set_header("Cache-Control", "no-cache")


class BoardFileHandler(FileHandler):
    async def get(self) -> None:  # type: ignore[override]
        await super().get("board.html")


class LoginCheckedHandler(RequestHandler):
    """A resource that needs a login, if the frontdesk has a token."""

    def initialize(self, frontdesk: BoardFrontdesk) -> None:
        self.frontdesk = frontdesk

    def set_default_headers(self) -> None:
        self.set_header("Cache-Control", "no-store")

    def prepare(self) -> None:
        token, header = self.frontdesk.token, self.request.headers.get("Authorization")
        self.frontdesk.shown.append(header)
        if not token:
            return
        if self.get_cookie(COOKIE) == token or header == f"Bearer {token}":
            self.set_header("Newsfabric-Operator", self.frontdesk.operator)
        else:
            self.set_status(401)
            self.finish({"error": {"reason": "unauthorized", "detail": "log in"}})


class DocumentHandler(LoginCheckedHandler):
    def get(self) -> None:
        self.set_header("Content-Type", "application/json")
        self.finish(self.frontdesk.answer())


class PlotsHandler(LoginCheckedHandler):
    def get(self) -> None:
        self.set_header("Content-Type", "application/json")
        self.finish(json.dumps(self.frontdesk.fabric.plots(), separators=(",", ":")))


class StreamHandler(LoginCheckedHandler):
    """Server-sent events: ``update``, sent at once and whenever the frontdesk sends one."""

    async def get(self) -> None:
        self.set_header("Content-Type", "text/event-stream")
        self.seen = 0
        self.is_silent = self.frontdesk.is_silent
        self.ended = asyncio.Event()
        self.frontdesk.streams.add(self)
        try:
            await self.update()
            await self.ended.wait()
        finally:
            self.frontdesk.streams.discard(self)

    async def update(self) -> None:
        if self.ended.is_set() or self.is_silent:
            return
        text = self.frontdesk.answer(self.seen)
        self.seen = self.frontdesk.fabric.events[-1]["seq"] if self.frontdesk.fabric.events else 0
        self.frontdesk.sent_bytes.append(len(text))
        with contextlib.suppress(StreamClosedError):
            self.write(f"event: update\ndata: {text}\n\n")
            await self.flush()

    def on_connection_close(self) -> None:
        self.ended.set()


class LoginHandler(RequestHandler):
    def initialize(self, frontdesk: BoardFrontdesk) -> None:
        self.frontdesk = frontdesk

    def post(self) -> None:
        if self.get_body_argument("token") == self.frontdesk.token:
            self.set_cookie(COOKIE, self.frontdesk.token, httponly=True, samesite="Strict")
            self.set_status(204)
        else:
            self.set_status(403)


class LogoutHandler(RequestHandler):
    def initialize(self, frontdesk: BoardFrontdesk) -> None:
        self.frontdesk = frontdesk

    def post(self) -> None:
        self.clear_cookie(COOKIE)
        self.set_status(204)


@contextlib.asynccontextmanager
async def opened_frontdesk(
    fabric: MadeUpFabric | None = None, *, every: float = 1.0, **given: Any
) -> AsyncIterator[BoardFrontdesk]:
    """Open a frontdesk that sends an update every ``every`` seconds; the test moves the clock."""
    frontdesk = BoardFrontdesk(fabric or MadeUpFabric(boxes=4), **given)
    frontdesk.open()
    beating = asyncio.create_task(_beat(frontdesk, every))
    try:
        yield frontdesk
    finally:
        beating.cancel()
        for stream in list(frontdesk.streams):
            stream.ended.set()
        await frontdesk.close()


async def _beat(frontdesk: BoardFrontdesk, every: float) -> None:
    while True:
        await asyncio.sleep(every)
        await frontdesk.send()


def eventful(fabric: MadeUpFabric) -> None:
    """Put the faults and events of a bad quarter of an hour on the board."""
    home, *others = fabric.regions
    fabric.happens("process_ready", home, f"{home}-retail-{fabric.boxes}")
    fabric.tick(41_000)
    fabric.happens("shovel_remade", home, f"{home}/core/shovel.outbound.1")
    fabric.tick(196_000)
    for other in others:
        fabric.happens("region_away", other, other)
        fabric.tick(19_000)
        fabric.happens("region_back", other, other)
        fabric.tick(77_000)
    fabric.draining.add(f"{home}-retail-7")
    fabric.happens("box_draining", home, f"{home}-retail-7")
    fabric.tick(5000)
    fabric.starting.add(f"{home}-retail-8")
    fabric.happens("process_not_ready", home, f"{home}-retail-8")
    fabric.tick(2000)
    fabric.slow_shovels[f"{home}/core/shovel.publish.{home}.2"] = 6200
    fabric.alarms[f"{home}-core-2"] = "memory"
    for other in others[:1]:
        fabric.down_nodes.add(f"{other}-core-3")
        fabric.happens("node_away", other, f"{other}-core-3")
        fabric.tick(3000)
    fabric.silence(f"{home}-retail-2")
    fabric.tick(1000)


async def _serve(options: argparse.Namespace) -> None:
    names = ("oregon", "dublin", "tokyo", "sydney", "cairo", "lima")[: options.regions]
    fabric = MadeUpFabric(regions=names, boxes=options.boxes, now_ms=int(time.time() * 1000))
    if options.eventful:
        fabric.now_ms -= 400_000
        eventful(fabric)
        fabric.now_ms = int(time.time() * 1000)
    frontdesk = BoardFrontdesk(fabric, port=options.port, token=options.token)
    frontdesk.open()
    sys.stdout.write(f"{frontdesk.page_url}\n")
    sys.stdout.flush()
    await frontdesk.live()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--regions", type=int, default=2)
    parser.add_argument("--boxes", type=int, default=40)
    parser.add_argument("--token", default="")
    parser.add_argument("--eventful", action="store_true", help="with troubles and events")
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(parser.parse_args()))
