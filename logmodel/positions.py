"""The project's positions, with a reach so short that histories get to its end."""

from __future__ import annotations

from typing import ClassVar

from gateway.wire import position
from logmodel.settings import POSITION_REACH


class ModelPosition(position.Position):
    """A version vector: a mark for each listed log, and a time that bounds searches."""

    __slots__ = ()

    reach_ms: ClassVar[int] = int(POSITION_REACH * 1000)
