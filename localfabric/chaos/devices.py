"""Devices of registered users in a chaos run: individual messages, kept, marked and dismissed.

Each user has two, at home in different regions. The *phone* stays, resumes from its position after
a disconnect, and dismisses most messages. It repeats each dismissal until it is notified of it. The
*page* comes and goes; each login opens the mailbox anew, which must have all messages since.
"""

from __future__ import annotations

import asyncio
import collections
import random
from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from typing import Any, Final

from localfabric.chaos.delivery_record import Sort
from localfabric.chaos.reading import ChaosReader, EventWriter, ReaderPlan
from newsfabric.errors import Disconnected
from newsfabric.messages.envelope import identity_of_id
from newsfabric.reader import Push
from newsfabric.reader import Reader as NewsReader

#: Users of a run.
USERS: Final = 4
# A mailbox has at most 1,000 messages: a run of any length leaves no more than this number there.
MOST_KEPT: Final = 100
# One of so many is kept, and so owed to every device, whenever it connects.
_KEPT_OF: Final = 3
# docs/protocol.md: without a push, repeat the verb.
_AGAIN_SECONDS: Final = 5.0
_CHECK_EVERY: Final = 0.25
# Verbs at a time: a gateway refills a reader's bucket with ten a second.
_AT_ONCE: Final = 2
_REF: Final = "dismiss"


def make_devices(
    tokens: Mapping[str, str], endpoints: Sequence[str], *, seed: int
) -> list[ReaderPlan]:
    """Make a phone and a page for each user, whose token is given."""
    rng = random.Random(seed)  # noqa: S311 - repeatable, not secret
    plans = []
    for n, (user, token) in enumerate(tokens.items()):
        for m, habit in enumerate(("phone", "page")):
            home = (n + m) % len(endpoints)
            stays = habit == "phone"
            plans.append(
                ReaderPlan(
                    name=f"{habit}-{n}",
                    habit=habit,
                    topics=(f"user.{user}",),
                    regions=tuple(endpoints[home:]) + tuple(endpoints[:home]),
                    transport="sockjs" if n % 4 == m else "websocket",
                    stays=None if stays else rng.uniform(8.0, 20.0),
                    away=0.0 if stays else rng.uniform(3.0, 8.0),
                    token=token,
                )
            )
    return plans


class Clearing:
    """The dismissals of a user, and those without a notification yet. Pure; ``now`` in seconds."""

    def __init__(self, *, most_kept: int = MOST_KEPT) -> None:
        self._most_kept = most_kept
        # Message numbers and ids, oldest first.
        self._kept: collections.deque[tuple[int, str]] = collections.deque()
        # By identity: number, id, and the time to send the verb next.
        self._unheard: dict[int, tuple[int, str, float]] = {}

    def had(self, n: int, id_: str, now: float) -> int | None:
        """Note the arrival of ``n`` as ``id_``; return the number of a message to dismiss,
        if any."""
        if n % _KEPT_OF == 0:
            self._kept.append((n, id_))
            if len(self._kept) <= self._most_kept:
                return None
            n, id_ = self._kept.popleft()
        self._unheard[identity_of_id(id_)] = (n, id_, now)
        return n

    def due(self, now: float, most: int) -> list[str]:
        """Return at most ``most`` ids to dismiss now, for the first time or again."""
        due = [entry for entry in self._unheard.items() if entry[1][2] <= now][:most]
        for identity, (n, id_, _) in due:
            self._unheard[identity] = (n, id_, now + _AGAIN_SECONDS)
        return [id_ for _, (_, id_, _) in due]

    def note_dismissed(self, identity: int) -> int | None:
        """Note a pushed dismissal; return the message's number if nothing reported it before."""
        entry = self._unheard.pop(identity, None)
        return None if entry is None else entry[0]

    def opened(self, identities: Set[int]) -> list[int]:
        """Note the ids in an opened mailbox; return the numbers of dismissed messages not in it."""
        gone = [identity for identity in self._unheard if identity not in identities]
        return [self._unheard.pop(identity)[0] for identity in gone]


class RecordedDevice(ChaosReader):
    """A device for the whole run."""

    def __init__(
        self, plan: ReaderPlan, log: EventWriter, rng: random.Random, called: asyncio.Event
    ) -> None:
        super().__init__(plan, log, rng, called)
        (self._topic,) = plan.topics
        self._clearing = Clearing()
        self._reader: NewsReader | None = None
        # True while the messages are the mailbox's, whose last push has a position.
        self._opening = False

    async def run(self) -> None:
        """Read and dismiss until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(super().run())
            group.create_task(self._dismiss())

    async def _ask(self, reader: NewsReader) -> None:
        if self._plan.away:
            self._positions.clear()
        position = self._positions.get(self._topic)
        self._opening = position is None
        await reader.send({"action": "login", "token": self._plan.token})
        await reader.subscribe(self._topic, position=position)
        self._reader = reader

    async def _dismiss(self) -> None:
        """Send each dismissal until the gateway announces it."""
        loop = asyncio.get_running_loop()
        while True:
            if self._reader is not None:
                for id_ in self._clearing.due(loop.time(), _AT_ONCE):
                    verb = {"action": "dismiss", "topic": self._topic, "id": id_, "ref": _REF}
                    await self._send(self._reader, verb)
            await asyncio.sleep(_CHECK_EVERY)

    @staticmethod
    async def _send(reader: NewsReader, verb: dict[str, Any]) -> None:
        # The reading task notices that the connection is gone.
        with suppress(Disconnected):
            await reader.send(verb)

    def _on_push(self, push: Push) -> None:
        if push.type == "error" and push.fields.get("ref") == _REF:
            # The box's broker is away: the verb is sent again.
            return
        super()._on_push(push)
        if push.type == "dismissed":
            self._note_notice(self._clearing.note_dismissed(identity_of_id(str(push.fields["id"]))))
        if push.position is not None:
            self._positions[self._topic] = push.position
            if self._opening:
                self._opening = False
                for n in self._clearing.opened(self._here):
                    self._note_notice(n)

    def _subscribed(self, push: Push) -> None:
        super()._subscribed(push)
        if not self._opening and not push.fields.get("recovered"):
            # The gateway can't resume: the missed messages are in the mailbox.
            del self._positions[self._topic]
            raise Disconnected(1012, "opens its mailbox instead")

    def _message(self, push: Push) -> Sort | None:
        sort = super()._message(push)
        if sort == "new" and not self._plan.away:
            now = asyncio.get_running_loop().time()
            gone = self._clearing.had(push.fields["body"]["n"], str(push.fields["id"]), now)
            if gone is not None:
                self._write("dismiss", gone)
        return sort

    def _note_notice(self, n: int | None) -> None:
        if n is not None:
            self._write("dismissed", n)
