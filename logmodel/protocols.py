"""The interfaces between a world and its parts, where an import would make a circle."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Protocol

from gateway.logs.known_log import KnownLog
from gateway.logs.logs import Logs, ReturningReader
from logmodel.book import Book
from logmodel.memory import TopicMemory
from logmodel.positions import ModelPosition
from logmodel.rows import Copy, ModelRow
from logmodel.settings import Profile


class AnyWorld(Protocol):
    """See :class:`logmodel.world.World`."""

    rng: random.Random
    profile: Profile
    parts: Any
    now: float
    regions: list[str]
    window: int
    known_log: type[KnownLog]
    is_quiet: bool
    last_row_at: float
    book: Book
    cuts: Any
    stores: Any
    brokers: Any
    publishers: Any
    ghosts: list[Any]
    routers: list[Any]
    gateways: list[Any]
    readers: list[Any]

    def begin_router(self, region: str, name: str) -> None: ...
    def begin_gateway(self, region: str) -> None: ...
    def at(self, when: float, step: Callable[..., None], *args: Any) -> None: ...
    def bring(self, when: float, step: Callable[..., None], *args: Any) -> None: ...
    def pause(self, shortest: float, longest: float, *, quiet: float) -> float: ...
    def run(self, seconds: float) -> None: ...


class AnyRouter(Protocol):
    """The interface of a router for the part that closes logs."""

    region: str
    name: str
    numbering: Any
    directory: Any

    def compare_clocks(self) -> None: ...
    def later(self, seconds: float, step: Callable[..., None], *args: Any) -> None: ...


class AnyGateway(Protocol):
    """The interface of a gateway for readers, checks and brokers."""

    region: str
    is_alive: bool
    is_listening: bool
    logs: Logs
    memory: dict[str, TopicMemory]
    offered: Any
    readers: dict[str, list[Any]]
    answers: Any

    def position(self) -> ModelPosition: ...
    def reader_at(self, position: ModelPosition) -> ReturningReader: ...
    def receive(self, item: Any) -> None: ...
    def counts_row(self, copy: Copy, row: ModelRow, *, read_at: str) -> bool: ...
    def note_replayed(self, identity: int) -> None: ...


class AnyReader(Protocol):
    """The interface of a reader for checks."""

    topic: str
    keeps_position: bool
    gateway: AnyGateway | None
    got: set[int]
    past: set[int]
    owed_since: float | None
