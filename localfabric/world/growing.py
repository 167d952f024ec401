"""Boxes of a running world, added and removed: the functions of a scaler's ``world`` driver.

Calls are idempotent, so that two scalers may make the same one at once. :func:`want` gets the
number of boxes that a region should have and starts the missing ones; :func:`end` stops drained
boxes and forgets them. The notes list a region's boxes, and the layout follows from them, so
``status``, ``down`` and ``chaos`` see them all. A lock is held while the notes are changed.

Three decisions that one would question:

- A node that boots takes a core for seconds. So at most ``at_once`` nodes of a region boot at a
  time, one by default; a later call starts the next one. In production each box has a machine of
  its own.
- A box's number isn't used again before all others were: messages about a removed box (its last
  reports, an order to drain) don't meet another one of its name.
- No call waits until a box works: its services wait by themselves for the parts they need.

All calls block until processes have ended; call them in a thread.
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
from localfabric.world.layout import RegionLayout, WorldBox, WorldLayout, lay_out
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

#: The largest number of boxes of a region that boot at a time.
AT_ONCE: Final = 1
# A node without an answer after this time isn't booting but broken, and delays no other box.
_BOOTS_WITHIN: Final = 90.0
# The services of a drained box end at once. Others get no more time than `down` gives.
_GRACE: Final = 8.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GrownBox:
    """A box that was started. ``alive``: some process of it runs, not that the box works."""

    name: str
    region: str
    age_seconds: float
    alive: bool


def boxes(state: Path, region: str | None = None) -> tuple[GrownBox, ...]:
    """Return the boxes of the world in ``state``, or of a region; WorldError without a world."""
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
    """Start boxes until ``region`` has ``count``; return the names of those started now.

    At most ``at_once`` boot at a time, so it may take several calls. It never ends a box.
    WorldError when the world isn't there or not ready, when the core doesn't answer, and when
    ``count`` is over :data:`MAX_BOXES`; boxes within that limit are started even then.
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
    """Stop the processes of the boxes ``names`` and forget the boxes; return the names found.

    The boxes should be drained: remaining readers get little time. An unknown name is taken for a
    box that was ended before. WorldError without a world.
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
    """Yield the world, locked; WorldError while ``up`` starts it, which has notes of its own."""
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
    # Before anything is started: so the remains of a crash are known.
    write_notes(state, notes)
    running = Running(grown, notes, find_rabbitmqs(grown.options, os.environ))
    running.start_broker(box.broker)
    for program in programs:
        running.start_program(program)
    return grown, running.notes, box.name


def _newest(layout: WorldLayout, notes: Notes, region: str) -> int:
    return notes.newest.get(region, max(layout.options.box_numbers(region), default=0))


def fresh_number(numbers: Collection[int], newest: int) -> int:
    """Return the number for a new box: the next free one after ``newest``; 1 follows 9.

    ``numbers`` are in use. WorldError if none is free. Pure.
    """
    for step in range(MAX_BOXES):
        number = (newest + step) % MAX_BOXES + 1
        if number not in numbers:
            return number
    raise WorldError(f"there is no room for more than {MAX_BOXES} boxes")


def _end(layout: WorldLayout, notes: Notes, found: Sequence[tuple[RegionLayout, WorldBox]]) -> None:
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
    # The notes lack the newest number of an unchanged region, and its box may be ended now.
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


def _admit(layout: WorldLayout, region: RegionLayout, box: WorldBox) -> None:
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


def _forget(layout: WorldLayout, region: RegionLayout, box: WorldBox) -> None:
    """Delete the box's user, password and folder. A core that doesn't answer keeps the user, whose
    password is lost."""
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
    layout: WorldLayout, notes: Notes, region: RegionLayout, box: WorldBox
) -> list[ProcessId]:
    names = (box.broker.name, *(p.name for p in box_programs(layout, region, box)))
    return [found for name in names if (found := notes.processes.get(name)) is not None]


def _age(found: Sequence[ProcessId]) -> float:
    """Return the age (s) of the oldest process: healing doesn't make a box young."""
    if not found:
        return 0.0
    oldest = min(process.started for process in found)
    return max(0.0, ticks_since_boot() - oldest) / os.sysconf("SC_CLK_TCK")


def _boots(notes: Notes, box: WorldBox) -> bool:
    broker = notes.processes.get(box.broker.name)
    if broker is None or not broker.alive or _age([broker]) > _BOOTS_WITHIN:
        return False
    return not answers(box.broker.amqp_port)


def await_boxes(state: Path, region: str, count: int, *, seconds: float) -> None:
    """Call :func:`want` repeatedly until ``region`` has ``count`` boxes whose brokers answer.

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
