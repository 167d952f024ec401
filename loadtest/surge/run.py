"""A surge: a small crowd, a great one, and a small one again, in a world with scalers.

Messages are published from the first reader to the last. The run decides nothing about boxes.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from tornado.httpclient import HTTPClientError
from tornado.simple_httpclient import SimpleAsyncHTTPClient

from loadtest.records import BODY_FIELD, PublisherRecord, census
from loadtest.surge.crowd import Crowds, running
from loadtest.surge.figures import SurgeSample
from localfabric.world.broker import HOST
from localfabric.world.growing import boxes
from localfabric.world.layout import RegionLayout, WorldLayout
from newsfabric.errors import Disconnected, NewsfabricError, WorldError
from newsfabric.publish import AsyncPublisher
from newsfabric.reader import fetch_endpoints

#: Gold, and no reader may miss a message: a slow one is disconnected, and resumes.
TOPIC: Final = "news.breaking"
#: A message published so shortly before a reader leaves isn't owed to that reader.
GRACE_NS: Final = 10_000_000_000
_EVERY: Final = 1.0
# Seconds for the last message to arrive everywhere.
_SETTLE: Final = 15.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SurgeOptions:
    """The options of a surge: first ``few`` readers, then up to ``many``, then ``few`` again.

    Rates are per second. ``shrinks_within``: seconds in which boxes must be ended then.
    """

    few: int
    many: int
    first_rate: float
    rate: float
    leave_rate: float
    holds: float
    messages: float
    shrinks_within: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Surge:
    """The results of a run: a sample a second, the crowds' counts, messages without a receipt."""

    samples: tuple[SurgeSample, ...]
    census: Mapping[str, int]
    unreceipted: int


async def surge(
    layout: WorldLayout,
    region: RegionLayout,
    options: SurgeOptions,
    print_line: Callable[[str], None],
) -> Surge:
    """Run the surge in ``region``."""
    urls = ",".join(broker.amqp_url for broker in region.client)
    crowd = running(frontdesk=region.frontdesk_url, topic=TOPIC, readers=options.many)
    async with (
        await AsyncPublisher.open([urls], app_id="newsfabric-surge", timeout=None) as publisher,
        crowd as crowds,
    ):
        news = _News(publisher, options.messages)
        watch = _Watch(layout, region, crowds, print_line)
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(news.publish()),
                    group.create_task(watch.observe()),
                ]
                await _phases(watch, crowds, options, print_line)
                news.stop()
                await watch.until(lambda s: news.settled, seconds=60.0)
                await asyncio.sleep(_SETTLE)
                for task in tasks:
                    task.cancel()
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from failed
        entries = await crowds.records()
    found = await asyncio.to_thread(census, entries, [news.record.entry()], grace=GRACE_NS)
    never_in = sum(entry["readers"] for entry in entries if not entry["since"])
    return Surge(
        samples=tuple(watch.samples),
        census={**dataclasses.asdict(found), "never_in": never_in},
        unreceipted=news.record.unreceipted,
    )


async def _phases(
    watch: _Watch, crowds: Crowds, options: SurgeOptions, print_line: Callable[[str], None]
) -> None:
    began_with = len(await watch.next())
    print_line(f"{options.few} readers come, {options.first_rate:g} a second")
    watch.phase = "few"
    await crowds.readers(options.few, options.first_rate)
    await watch.until(
        lambda s: s.arrived >= options.few, seconds=_time(options.few, options.first_rate)
    )
    more = options.many - options.few
    print_line(f"{more} more come, {options.rate:g} a second")
    watch.phase = "surge"
    await crowds.readers(options.many, options.rate)
    await watch.until(lambda s: s.arrived >= options.many, seconds=_time(more, options.rate))
    # Refused readers are still trying.
    await watch.until(lambda s: s.present >= options.many, seconds=120.0, must=False)
    print_line(f"{watch.samples[-1].present} are there")
    watch.phase = "hold"
    await asyncio.sleep(options.holds)
    print_line(f"{more} leave, {options.leave_rate:g} a second")
    watch.phase = "leave"
    await crowds.readers(options.few, options.leave_rate)
    await watch.until(lambda s: s.left >= more, seconds=_time(more, options.leave_rate))
    watch.phase = "rest"
    print_line("boxes are drained and ended")
    await watch.until(
        lambda s: len(s.started) <= began_with and s.present >= options.few,
        seconds=options.shrinks_within,
        must=False,
    )
    await asyncio.sleep(5.0)


def _time(count: int, rate: float) -> float:
    """Return the seconds after which a phase has failed."""
    return 60.0 + 2.0 * count / rate


class _News:
    """Publishes numbered messages at a fixed rate, until it is stopped."""

    def __init__(self, publisher: AsyncPublisher, rate: float) -> None:
        self._publisher = publisher
        self._rate = rate
        self._stopped = False
        self._sending: set[asyncio.Task[None]] = set()
        self.record = PublisherRecord(secrets.token_hex(4))

    def stop(self) -> None:
        """Publish no more from now on."""
        self._stopped = True

    @property
    def settled(self) -> bool:
        """True once all messages sent have their replies."""
        return self._stopped and not self._sending

    async def publish(self) -> None:
        """Publish in an open loop: due times don't depend on earlier messages."""
        due = time.monotonic()
        while not self._stopped:
            task = asyncio.create_task(self._send(due))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)
            due += 1 / self._rate
            await asyncio.sleep(max(0.0, due - time.monotonic()))

    async def _send(self, due: float) -> None:
        late = max(0.0, time.monotonic() - due)
        n, sent = self.record.next(TOPIC), time.time_ns()
        due_ns = sent - round(late * 1e9)
        body = {BODY_FIELD: self.record.name, "n": n, "sent_ns": sent, "due_ns": due_ns}
        with suppress(NewsfabricError):
            await self._publisher.publish(TOPIC, body, message_id=f"{self.record.name}-{n}")
            self.record.receipted(TOPIC, n, sent)


class _Watch:
    """Takes a sample each second."""

    def __init__(
        self,
        layout: WorldLayout,
        region: RegionLayout,
        crowds: Crowds,
        print_line: Callable[[str], None],
    ) -> None:
        self._layout = layout
        self._region = region
        self._crowds = crowds
        self._print_line = print_line
        self._began = time.monotonic()
        self._new = asyncio.Event()
        self.phase = "begin"
        self.samples: list[SurgeSample] = []

    async def observe(self) -> None:
        """Take samples until cancelled."""
        while True:
            due = time.monotonic() + _EVERY
            self._note_sample(await self._sample())
            await asyncio.sleep(max(0.0, due - time.monotonic()))

    async def next(self) -> tuple[str, ...]:
        """Return the boxes of the next sample."""
        self._new.clear()
        await self._new.wait()
        return self.samples[-1].started

    async def until(
        self, true: Callable[[SurgeSample], bool], *, seconds: float, must: bool = True
    ) -> None:
        """Wait for a sample for which ``true``; WorldError if it ``must`` come and is too late."""
        deadline = time.monotonic() + seconds
        while True:
            await self.next()
            if true(self.samples[-1]):
                return
            if time.monotonic() > deadline:
                if must:
                    raise WorldError(f"{self.phase}: not done after {seconds:.0f} s")
                return

    def _note_sample(self, sample: SurgeSample) -> None:
        before = self.samples[-1] if self.samples else None
        self.samples.append(sample)
        self._new.set()
        if before is None:
            return
        for name in set(sample.started) - set(before.started):
            self._print_line(f"{sample.at:6.1f} s  {name} is started; {sample.present} readers")
        for name in set(before.started) - set(sample.started):
            self._print_line(f"{sample.at:6.1f} s  {name} has ended; {sample.present} readers")
        if sample.standing != before.standing:
            self._print_line(f"{sample.at:6.1f} s  {sample.standing} boxes take readers")
        if sample.refused:
            self._print_line(f"{sample.at:6.1f} s  {sample.refused} readers are refused")

    async def _sample(self) -> SurgeSample:
        report, wanted = await asyncio.gather(self._crowds.report(), self._wanted())
        started = await asyncio.to_thread(boxes, self._layout.paths.state, self._region.name)
        return SurgeSample(
            at=time.monotonic() - self._began,
            phase=self.phase,
            started=tuple(box.name for box in started),
            standing=await self._standing(),
            wanted=wanted,
            machine_load=os.getloadavg()[0],
            **{name: report[name] for name in _COUNTS},
            arrivals=report["arrive"],
            connects=report["connect"],
            delays=report["receive"],
        )

    async def _standing(self) -> int:
        try:
            return len((await fetch_endpoints(self._region.endpoints_url)).gateways)
        except Disconnected:
            return 0

    async def _wanted(self) -> int | None:
        """Return the number that the first scaler wants; None if it can't be had."""
        for scaler in self._region.of("scaler"):
            http = SimpleAsyncHTTPClient(force_instance=True)
            try:
                answer = await http.fetch(f"http://{HOST}:{scaler.port}/scale", request_timeout=1.0)
                return _whole(json.loads(answer.body))
            except (OSError, HTTPClientError, ValueError):
                continue
            finally:
                http.close()
        return None


_COUNTS: Final = (
    "present",
    "arrived",
    "left",
    "refused",
    "failed",
    "broken",
    "moved",
    "returned",
    "gaps",
    "messages",
    "doubled",
    "repeats",
)


def _whole(document: Any) -> int | None:
    found = document.get("wanted") if isinstance(document, dict) else None
    return found if isinstance(found, int) else None
