"""A frontdesk that has nothing but a board, for `newsfabric top`."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import tornado.web
from tornado.iostream import StreamClosedError

from newsfabric.service import listen

NOW = 1_795_000_000_000


def box(name: str, **changed: Any) -> dict[str, Any]:
    return {
        "name": name,
        "state": "ready",
        "waiting_for": [],
        "readers": 0,
        "capacity": 1000,
        "messages_per_second": 0.0,
        "deliveries_per_second": 0.0,
        "connects_per_second": 0.0,
        "delay_p50_ms": None,
        "delay_p99_ms": None,
        "engine": "native",
        "version": "0.1.0",
        "age_ms": 500,
        "started_ms": NOW - 3_600_000,
        "figures": {},
        **changed,
    }


def service(name: str, kind: str = "router", **changed: Any) -> dict[str, Any]:
    return {
        "name": name,
        "kind": kind,
        "version": "0.1.0",
        "state": "ready",
        "waiting_for": [],
        "age_ms": 400,
        "started_ms": NOW - 60_000,
        "figures": {},
        **changed,
    }


def shovel(name: str, **changed: Any) -> dict[str, Any]:
    return {
        "name": name,
        "runs_on": "oregon/core",
        "source": "oregon/client",
        "state": "running",
        "canary_age_ms": 300,
        "messages_per_second": 12.0,
        "restarts": 0,
        **changed,
    }


def region(name: str, **changed: Any) -> dict[str, Any]:
    return {
        "name": name,
        "frontdesk_url": "",
        "age_ms": 0,
        "state": "well",
        "why": [],
        "totals": {
            "readers": 0,
            "capacity": 1000,
            "boxes": 1,
            "boxes_ready": 1,
            "messages_per_second": 0.0,
            "deliveries_per_second": 0.0,
            "connects_per_second": 0.0,
            "delay_p50_ms": None,
            "delay_p99_ms": None,
        },
        "clusters": [],
        "services": [],
        "shovels": [],
        "boxes": [],
        "topics": [],
        "publishers": [],
        **changed,
    }


def event(seq: int, who: str, text: str, kind: str = "process_gone") -> dict[str, Any]:
    at = NOW + seq * 1000
    return {"seq": seq, "at_ms": at, "region": "oregon", "kind": kind, "who": who, "text": text}


def board(*regions: dict[str, Any], **changed: Any) -> dict[str, Any]:
    return {
        "frontdesk": "oregon-frontdesk-1",
        "region": "oregon",
        "version": "0.1.0",
        "now_ms": NOW,
        "regions": list(regions) or [region("oregon")],
        "events": [],
        **changed,
    }


class TopDesk:
    """Serves ``document`` by the board's contract, again whenever :meth:`show` changes it.

    With a ``token`` it is for its bearer alone. ``tokens`` are those that came.
    """

    def __init__(self, document: dict[str, Any], token: str | None = None) -> None:
        self.document = document
        self.token = token
        self.tokens: list[str | None] = []
        self.every = 0.2
        self.url = ""
        self._changed = asyncio.Event()
        self._silent = self._dead = False
        self._server: Any = None

    def show(self, document: dict[str, Any]) -> None:
        self.document = document
        self._changed.set()

    def fall_silent(self) -> None:
        """Connections stay, and nothing comes."""
        self._silent = True

    def speak(self) -> None:
        """Silent no more, to who comes anew."""
        self._silent = False

    async def die(self) -> None:
        """Nobody listens there any more, and connections end."""
        self._server.stop()
        self._dead = True
        self._changed.set()
        await self._server.close_all_connections()

    def may(self, handler: tornado.web.RequestHandler) -> bool:
        came = handler.request.headers.get("Authorization")
        self.tokens.append(came)
        if self.token is None or came == f"Bearer {self.token}":
            return True
        handler.set_status(401)
        handler.finish("who are you?")
        return False

    async def send_to(self, handler: tornado.web.RequestHandler) -> None:
        handler.set_header("Content-Type", "text/event-stream")
        with contextlib.suppress(StreamClosedError):
            while not self._dead:
                if not self._silent:
                    text = json.dumps(self.document)
                    handler.write(f"event: update\ndata: {text}\n\n")
                    await handler.flush()
                self._changed.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), self.every)


class _Json(tornado.web.RequestHandler):
    def initialize(self, desk: TopDesk) -> None:
        self._desk = desk

    def get(self) -> None:
        if self._desk.may(self):
            self.write(self._desk.document)


class _Stream(tornado.web.RequestHandler):
    def initialize(self, desk: TopDesk) -> None:
        self._desk = desk

    async def get(self) -> None:
        if self._desk.may(self):
            await self._desk.send_to(self)


@contextlib.asynccontextmanager
async def open_desk(document: dict[str, Any], token: str | None = None) -> AsyncIterator[TopDesk]:
    """One that listens on loopback until the end of the block."""
    desk = TopDesk(document, token)
    routes = [(r"/board.json", _Json, {"desk": desk}), (r"/board/stream", _Stream, {"desk": desk})]
    application = tornado.web.Application(routes, log_function=lambda _handler: None)
    desk._server, port = listen(application, host="127.0.0.1", port=0)
    desk.url = f"http://127.0.0.1:{port}"
    try:
        yield desk
    finally:
        await desk.die()
