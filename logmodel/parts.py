"""The parts of which a history is made. Each can be replaced: by one with a fault, or by the
project's own code with the same methods.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from gateway.logs.known_log import KnownLog
from gateway.logs.log_times import LogTimes
from gateway.logs.logs import Logs, ReturningReader
from logmodel.closing import Closing
from logmodel.directory import Directory
from logmodel.gateway import ModelGateway
from logmodel.late import LateMessages
from logmodel.memory import TopicMemory
from logmodel.numbering import Numbering
from logmodel.positions import ModelPosition
from logmodel.resuming import Resuming
from logmodel.router import ModelRouter
from wholesale.router.log_clock import LogClock


@dataclasses.dataclass(frozen=True, slots=True)
class ModelParts:
    """The rules, and the two simulated processes that obey them."""

    clock: type[LogClock] = LogClock
    numbering: type[Numbering] = Numbering
    directory: type[Directory] = Directory
    closing: type[Closing] = Closing
    known: type[KnownLog] = KnownLog
    times: type[LogTimes] = LogTimes
    logs: type[Logs] = Logs
    reader_at: type[ReturningReader] = ReturningReader
    position: type[ModelPosition] = ModelPosition
    memory: type[TopicMemory] = TopicMemory
    late: type[LateMessages] = LateMessages
    resuming: type[Resuming] = Resuming
    router: type[ModelRouter] = ModelRouter
    gateway: type[ModelGateway] = ModelGateway


DESIGN = ModelParts()


def parts_with(subclasses: Iterable[type]) -> ModelParts:
    """Return the design, with these subclasses in place of their base classes."""
    given = list(subclasses)
    changed = {}
    for field in dataclasses.fields(ModelParts):
        part = getattr(DESIGN, field.name)
        mine = [cls for cls in given if issubclass(cls, part)]
        if len(mine) == 1:
            changed[field.name] = mine[0]
        elif mine:
            # Several faults in one part: each overrides its own methods.
            changed[field.name] = type(part.__name__, tuple(mine), {})
    return dataclasses.replace(DESIGN, **changed)
