"""A stand-in for Mercure: the command line of its server, and its protocol as far as a comparison
needs it. Readers' replies are sent in chunks, as Go sends them."""

from __future__ import annotations

import argparse
import asyncio
import collections
from typing import Any

import jwt
from tornado.web import Application, HTTPError, RequestHandler

READERS: collections.defaultdict[str, set[FakeMercure]] = collections.defaultdict(set)


class FakeMercure(RequestHandler):
    def initialize(self, asked: argparse.Namespace) -> None:
        self._asked = asked

    async def get(self) -> None:
        if not self._asked.allow_anonymous:
            raise HTTPError(401)
        self._topic = self.get_query_argument("topic")
        self._gone = asyncio.Event()
        READERS[self._topic].add(self)
        self.set_header("Content-Type", "text/event-stream")
        self.write(":\n")
        # As our gateway does; Mercure has no such reply.
        if self.get_query_argument("answer", ""):
            self.write("data: {}\n\n")
        await self.flush()
        await self._gone.wait()

    def on_connection_close(self) -> None:
        READERS[self._topic].discard(self)
        self._gone.set()

    def post(self) -> None:
        kind, _, token = self.request.headers["Authorization"].partition(" ")
        claims: Any = jwt.decode(token, self._asked.publisher_jwt_key, algorithms=["HS256"])
        if kind != "Bearer" or "*" not in claims["mercure"]["publish"]:
            raise HTTPError(401)
        for reader in READERS[self.get_body_argument("topic")]:
            reader.write(f"id: urn:uuid:1\ndata: {self.get_body_argument('data')}\n\n")
            reader.flush()
        self.write("urn:uuid:1")


async def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--addr", required=True)
    parser.add_argument("--publisher-jwt-key", required=True)
    parser.add_argument("--allow-anonymous", action="store_true")
    parser.add_argument("--transport-url", choices=["local://local"], required=True)
    parser.add_argument("--read-timeout")
    parser.add_argument("--write-timeout")
    asked = parser.parse_args()
    host, _, port = asked.addr.partition(":")
    hub = Application([("/.well-known/mercure", FakeMercure, {"asked": asked})])
    hub.listen(int(port), host)
    await asyncio.Event().wait()


asyncio.run(main())
