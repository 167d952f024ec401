"""Readers, simulated: they roam, keep the last position that they were given, and come back.

A *ghost* stays connected to one gateway from its start. So the messages owed to connected readers
are checked without a resume.
"""

from __future__ import annotations

from collections.abc import Sequence

from logmodel.book import InvariantBroken
from logmodel.checks import check_answer
from logmodel.positions import ModelPosition
from logmodel.protocols import AnyGateway, AnyWorld


class ModelReader:
    """A reader of one topic."""

    keeps_position = True

    def __init__(self, world: AnyWorld, topic: str) -> None:
        self.world = world
        self.topic = topic
        self.gateway: AnyGateway | None = None
        #: The gateway that is to answer its resume.
        self.waits_for: AnyGateway | None = None
        self.position: ModelPosition | None = None
        #: All messages that it ever got, and those that it got on this connection.
        self.got: set[int] = set()
        self._got_here: set[int] = set()
        #: The start of its debt: messages routed later are owed to it, except those offered before.
        self.owed_since: float | None = None
        self.past: set[int] = set()
        self._was_cut_short = False

    def come(self, gateway: AnyGateway) -> None:
        """Connect with its position, or without one like a new reader."""
        if self.position is not None:
            self.waits_for = gateway
            gateway.answers.resume(self, self.position)
        elif gateway.is_listening:
            self.begin(gateway)

    def begin(self, gateway: AnyGateway) -> None:
        """Connect to a gateway; all messages are owed to the reader from now on."""
        self._owe_from_now(gateway)
        self._got_here = set()
        self._join(gateway)

    def resumed(self, gateway: AnyGateway, given: Sequence[int], *, is_proved: bool) -> None:
        """Receive the reply: messages, and whether they are proved to be all (``recovered``)."""
        world = self.world
        self.waits_for = None
        world.book.counts["recovered" if is_proved else "not_recovered"] += 1
        if is_proved:
            check_answer(world, gateway, self, given)
            if not self._was_cut_short:
                world.book.counts["repeats"] += len(self.got.intersection(given))
        else:
            self._owe_from_now(gateway)
        self._got_here = set()
        self._was_cut_short = bool(given) and world.rng.random() < 0.2
        if self._was_cut_short:
            # The connection ends amid the replay: its position stays the one with which it came.
            given = given[: len(given) // 2]
            if not is_proved:
                self.position = None
        for identity in given:
            self.get(identity, None)
        if not self._was_cut_short:
            self._join(gateway)

    def get(self, identity: int, position: ModelPosition | None) -> None:
        """Receive a message, with a position if it is a live one."""
        if identity in self._got_here:
            raise InvariantBroken("L3", f"a {self} got message {identity} twice on one connection")
        self._got_here.add(identity)
        self.got.add(identity)
        if position is not None:
            self.position = position

    def leave(self) -> None:
        if self.gateway is not None:
            self.gateway.readers[self.topic].remove(self)
        self.gateway = self.waits_for = None

    def _owe_from_now(self, gateway: AnyGateway) -> None:
        self.owed_since = self.world.now
        identity_of = self.world.book.identity_of
        self.past = {identity_of[copy] for copy in gateway.offered}

    def _join(self, gateway: AnyGateway) -> None:
        self.gateway = gateway
        gateway.readers[self.topic].append(self)
        if self.keeps_position:
            self.position = gateway.position()

    def __str__(self) -> str:
        return "reader"


class Ghost(ModelReader):
    """A reader that never leaves its gateway."""

    keeps_position = False

    def get(self, identity: int, position: ModelPosition | None) -> None:
        super().get(identity, None)

    def __str__(self) -> str:
        return "reader who stayed"
