"""Boxes of a running world that come and go: what a scaler's ``world`` driver calls.

Everything is absolute, so that two scalers may say the same thing at once: :func:`want` says how
many boxes a region should have and starts what is missing, :func:`end` stops boxes that are
drained and forgets them. Which boxes a region has is in the notes, from which the layout follows,
so ``status``, ``down`` and ``chaos`` see them all. One lock holds while the notes are changed.

Three things that one would question:

- A node that boots takes a core for seconds. So of those that don't answer yet there are at most
  ``at_once`` in a region, one if nothing else is said; who asks again gets the next one. In
  production each box has a machine of its own.
- A box's number isn't given again before the others were: what is said of a box that is gone
  (its last reports, an order to drain) doesn't meet another one of its name.
- Nothing waits here until a box works: its services wait for what they need by themselves.

All of it blocks, for as long as processes take to end; call it in a thread.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import shutil
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from localfabric.world import processes
from localfabric.world.broker import answers
from localfabric.world.dataplanes import dataplanes
from localfabric.world.layout import Box, RegionLayout, WorldLayout, lay_out
from localfabric.world.options import MAX_BOXES
from localfabric.world.processes import ProcessId, ticks_since_boot
from localfabric.world.programs import box_programs
from localfabric.world.rabbitmq_homes import find_rabbitmqs
from localfabric.world.running import Running
from localfabric.world.start import check_ports_of, write_definitions
from localfabric.world.state import Notes, changing, read_running, write_notes
from newsfabric.brokers.management import Management
from newsfabric.errors import ManagementError, WorldError
from newsfabric.settings import Credentials
from newsfabric.topics import load_topics
from newsfabric.topology.rights import user_definitions
from newsfabric.topology.roles import core_box, user_name
from operations.passwords import passwords_in

#: How many boxes of a region boot at a time.
AT_ONCE: Final = 1
# A node that doesn't answer after so long isn't booting, it is broken, and holds up nobody else.
_BOOTS_WITHIN: Final = 90.0
# What a drained box has left ends at once. What was never drained gets no more than `down` gives.
_GRACE: Final = 8.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GrownBox:
    """A box that was started. ``alive`` says that some process of it runs, not that it works."""

    name: str
    region: str
    age_seconds: float
    alive: bool


def boxes(state: Path, region: str | None = None) -> tuple[GrownBox, ...]:
    """The boxes of the world in ``state``, or of one region of it; WorldError without a world."""
    layout, notes = read_running(state)
    regions = layout.regions if region is None else (layout.region(region),)
    return tuple(
        GrownBox(
            name=box.name,
            region=one.name,
            age_seconds=_age(_processes(layout, notes, one, box)),
            alive=any(p.alive for p in _processes(layout, notes, one, box)),
        )
        for one in regions
        for box in one.boxes
    )


def want(state: Path, region: str, count: int, *, at_once: int = AT_ONCE) -> tuple[str, ...]:
    """Start boxes until ``region`` has ``count``; returns the names of those started now.

    No more than ``at_once`` boot at a time, so it may take several calls. It never ends one.
    WorldError when the world isn't there or not ready, when the core doesn't answer, and when
    there is no room for so many (:data:`MAX_BOXES` a region); those that fit are started then.
    """
    started: list[str] = []
    with _changing_ready(state) as (laid, noted):
        layout, notes, place = laid, noted, laid.region(region)
        missing = min(count, MAX_BOXES) - len(place.boxes)
        room = at_once - sum(_boots(notes, box) for box in place.boxes)
        for _ in range(min(missing, room)):
            layout, notes, name = _start_one(layout, notes, region)
            started.append(name)
    if count > MAX_BOXES:
        raise WorldError(f"{region} has room for {MAX_BOXES} boxes, {count} are wanted")
    return tuple(started)


def end(state: Path, names: Collection[str]) -> tuple[str, ...]:
    """Stop what is left of the boxes called ``names`` and forget them; returns those it found.

    They should be drained: readers that are there still are sent away in a hurry. A name that is
    no box's is one that was ended before. WorldError without a world.
    """
    with _changing_ready(state) as (layout, notes):
        found = [
            (region, box) for region in layout.regions for box in region.boxes if box.name in names
        ]
        if found:
            _end(layout, notes, found)
    return tuple(box.name for _, box in found)


@contextmanager
def _changing_ready(state: Path) -> Iterator[tuple[WorldLayout, Notes]]:
    """The world, held; not while ``up`` starts it, which has notes of its own."""
    with changing(state):
        layout, notes = read_running(state)
        if not notes.ready:
            raise WorldError("the world is still being started")
        try:
            yield layout, notes
        except FileNotFoundError as exc:
            raise WorldError(f"the world is being stopped: {exc}") from exc


def _start_one(layout: WorldLayout, notes: Notes, region: str) -> tuple[WorldLayout, Notes, str]:
    state = layout.paths.state
    numbers = layout.options.box_numbers(region)
    number = fresh_number(numbers, _newest(layout, notes, region))
    options = layout.options.with_boxes(region, (*numbers, number))
    grown = lay_out(options, state)
    place = grown.region(region)
    (box,) = (one for one in place.boxes if one not in layout.region(region).boxes)
    check_ports_of(box)
    write_definitions(grown, load_topics(grown.paths.topics))
    _admit(grown, place, box)
    programs = box_programs(grown, place, box)
    names = (box.broker.name, *(program.name for program in programs))
    notes = dataclasses.replace(
        notes,
        options=options,
        processes=notes.processes | dict.fromkeys(names),
        newest=notes.newest | {region: number},
    )
    # Before anything is started: what a crash leaves behind is known.
    write_notes(state, notes)
    running = Running(grown, notes, find_rabbitmqs(grown.options, os.environ))
    running.start_broker(box.broker)
    for program in programs:
        running.start_program(program)
    return grown, running.notes, box.name


def _newest(layout: WorldLayout, notes: Notes, region: str) -> int:
    return notes.newest.get(region, max(layout.options.box_numbers(region), default=0))


def fresh_number(numbers: Collection[int], newest: int) -> int:
    """The number for a box beside ``numbers``: the next free one after ``newest``, after 9 comes 1.

    WorldError if none is free. Pure.
    """
    for step in range(MAX_BOXES):
        number = (newest + step) % MAX_BOXES + 1
        if number not in numbers:
            return number
    raise WorldError(f"there is no room for more than {MAX_BOXES} boxes")


def _end(layout: WorldLayout, notes: Notes, found: Sequence[tuple[RegionLayout, Box]]) -> None:
    state = layout.paths.state
    services: list[ProcessId] = []
    brokers: list[ProcessId] = []
    names: set[str] = set()
    planes = {plane.socket: plane.process for plane in dataplanes(state)}
    options = layout.options
    for region, box in found:
        programs = [program.name for program in box_programs(layout, region, box)]
        services += [p for name in programs if (p := notes.processes.get(name)) is not None]
        if box.control_socket in planes:
            services.append(planes[box.control_socket])
        if (broker := notes.processes.get(box.broker.name)) is not None:
            brokers.append(broker)
        names |= {box.broker.name, *programs}
        number = int(box.name.rpartition("-")[2])
        others = (other for other in options.box_numbers(region.name) if other != number)
        options = options.with_boxes(region.name, others)
    processes.end(services, grace=_GRACE)
    processes.kill(brokers)
    left = {name: p for name, p in notes.processes.items() if name not in names}
    versions = {name: known for name, known in notes.versions.items() if name not in names}
    # Of a region that hasn't grown the notes don't have it yet, and it may be one of these.
    newest = notes.newest | {
        region.name: _newest(layout, notes, region.name) for region, _ in found
    }
    write_notes(
        state,
        dataclasses.replace(
            notes, options=options, processes=left, versions=versions, newest=newest
        ),
    )
    shrunk = lay_out(options, state)
    for region, box in found:
        _forget(layout, region, box)
    write_definitions(shrunk, load_topics(shrunk.paths.topics))


def _admit(layout: WorldLayout, region: RegionLayout, box: Box) -> None:
    """Make the box's user on the core of its region."""
    user = core_box(region.name, box.name)
    passwords = passwords_in(layout.paths.users, [user.name])
    asyncio.run(_import(region, user_definitions([user], passwords)))


async def _import(region: RegionLayout, document: Mapping[str, object]) -> None:
    failure: ManagementError | None = None
    for node in region.core:
        async with Management(node.management_url, Credentials()) as management:
            try:
                await management.import_definitions(document)
            except ManagementError as exc:
                failure = exc
                continue
            return
    raise WorldError(f"the core of {region.name} doesn't take a new box: {failure}")


def _forget(layout: WorldLayout, region: RegionLayout, box: Box) -> None:
    """Its user, its password, its folder. A core that doesn't answer keeps the user, which nobody
    has the password of any more."""
    name = user_name("box", box.name)
    asyncio.run(_delete_user(region, name))
    paths = layout.paths
    (paths.users / name).unlink(missing_ok=True)
    paths.definitions(box.name).unlink(missing_ok=True)
    shutil.rmtree(box.broker.folder, ignore_errors=True)


async def _delete_user(region: RegionLayout, name: str) -> None:
    for node in region.core:
        async with Management(node.management_url, Credentials()) as management:
            try:
                await management.delete_user(name)
            except ManagementError:
                continue
            return


def _processes(
    layout: WorldLayout, notes: Notes, region: RegionLayout, box: Box
) -> list[ProcessId]:
    names = (box.broker.name, *(p.name for p in box_programs(layout, region, box)))
    return [found for name in names if (found := notes.processes.get(name)) is not None]


def _age(found: Sequence[ProcessId]) -> float:
    """Of the oldest of them: what was healed since doesn't make a box young."""
    if not found:
        return 0.0
    oldest = min(process.started for process in found)
    return max(0.0, ticks_since_boot() - oldest) / os.sysconf("SC_CLK_TCK")


def _boots(notes: Notes, box: Box) -> bool:
    broker = notes.processes.get(box.broker.name)
    if broker is None or not broker.alive or _age([broker]) > _BOOTS_WITHIN:
        return False
    return not answers(box.broker.amqp_port)


def await_boxes(state: Path, region: str, count: int, *, seconds: float) -> None:
    """:func:`want` again and again until ``region`` has so many whose brokers answer.

    WorldError when it takes longer than ``seconds``.
    """
    deadline = time.monotonic() + seconds
    while True:
        want(state, region, count)
        layout, notes = read_running(state)
        boxes_there = layout.region(region).boxes
        if len(boxes_there) >= count and not any(_boots(notes, box) for box in boxes_there):
            return
        if time.monotonic() > deadline:
            raise WorldError(f"{region} has no {count} boxes after {seconds:.0f} s")
        time.sleep(0.2)
