"""The regions' stores, simulated: rows of logs, messages, the directory, and their replication.

A region's own store is consistent: a read there at quorum sees all that was written there. A
number's index row and its message's row are written, lost, late and replicated independently.
"""

from __future__ import annotations

from logmodel.directory import DirectoryRow
from logmodel.protocols import AnyWorld
from logmodel.rows import VOID, Copy, ModelRow
from logmodel.settings import TOPICS
from newsfabric.store.logs import Log


class ModelStore:
    """The content of one region's store."""

    def __init__(self, region: str) -> None:
        self.region = region
        #: Seconds by which its clock is wrong.
        self.clock_error = 0.0
        self.index: dict[Copy, ModelRow] = {}
        self.messages: dict[Copy, ModelRow] = {}
        self.topics: dict[str, dict[Copy, ModelRow]] = {topic: {} for topic in TOPICS}
        self.copies: dict[int, list[Copy]] = {}
        self.directory: dict[Log, DirectoryRow] = {}
        #: The logs of the directory that haven't ended, in their order.
        self.open_logs: dict[Log, None] = {}
        #: The log of each change in order: after a full read, a gateway reads only new changes.
        self.changes: list[Log] = []

    def put_index(self, copy: Copy, row: ModelRow) -> bool:
        """Return whether the row changed: void replaces a message's, and nothing replaces void."""
        old = self.index.get(copy)
        if old is not None and (old is VOID or row is not VOID):
            return False
        self.index[copy] = row
        return True

    def put_message(self, copy: Copy, row: ModelRow) -> bool:
        if copy in self.messages:
            return False
        self.messages[copy] = row
        self.topics[row.topic][copy] = row
        self.copies.setdefault(row.identity, []).append(copy)
        return True

    def put_directory(self, log: Log, row: DirectoryRow) -> bool:
        old = self.directory.get(log)
        if old is not None and old.version >= row.version:
            return False
        self.directory[log] = row
        if row.ended is None:
            self.open_logs[log] = None
        else:
            self.open_logs.pop(log, None)
        self.changes.append(log)
        return True

    def find(self, copy: Copy) -> ModelRow | None:
        """Return a number's message, VOID, or None, also if one of its two rows is missing."""
        index = self.index.get(copy)
        return index if index is None or index is VOID else self.messages.get(copy)

    def rows_of(self, copy: Copy) -> tuple[ModelRow | None, ModelRow | None]:
        """Return its index row and its message, each None if missing."""
        return self.index.get(copy), self.messages.get(copy)


class Stores:
    """The stores of all regions: their outages, and the replication between them."""

    def __init__(self, world: AnyWorld) -> None:
        self._world = world
        self._stores = {region: ModelStore(region) for region in world.regions}
        # Per region, the end of its outage or overload.
        self.down: dict[str, float] = {}
        self.directory_down: dict[str, float] = {}
        self.overloaded: dict[str, float] = {}
        # The mean lag between regions, in seconds.
        self._lag = world.rng.choice([0.1, 1.0, 30.0])

    def __getitem__(self, region: str) -> ModelStore:
        return self._stores[region]

    def is_down(self, region: str) -> bool:
        return self.down.get(region, 0) > self._world.now

    def is_directory_down(self, region: str) -> bool:
        """Return whether no directory row of this region can be changed."""
        return self.is_down(region) or self.directory_down.get(region, 0) > self._world.now

    def is_overloaded(self, region: str) -> bool:
        """Return whether all writes of messages time out at home, although reads work."""
        return self.overloaded.get(region, 0) > self._world.now

    def heal(self) -> None:
        for until in (self.down, self.directory_down, self.overloaded):
            until.clear()

    def can_ask(self, asking: str, region: str) -> bool:
        """Return whether a process in one region can read the store of the other."""
        return not self.is_down(region) and not self._world.cuts.between(asking, region)

    def put_index(self, region: str, copy: Copy, row: ModelRow) -> None:
        """Add a row. If it reached a foreign region first, it isn't replicated home from there."""
        if self._stores[region].put_index(copy, row) and region == copy[0].region:
            for other in self._others(region):
                self._replicate(region, other, self.put_index, copy, row)

    def put_message(self, region: str, copy: Copy, row: ModelRow) -> None:
        if self._stores[region].put_message(copy, row) and region == copy[0].region:
            for other in self._others(region):
                self._replicate(region, other, self.put_message, copy, row)

    def write_directory(self, region: str, log: Log, row: DirectoryRow) -> None:
        """Apply a transaction in ``region``, and replicate it to all others."""
        if self._stores[region].put_directory(log, row):
            for other in self._others(region):
                self._replicate(region, other, self._hear_directory, log, row)

    def _hear_directory(self, region: str, log: Log, row: DirectoryRow) -> None:
        self._stores[region].put_directory(log, row)

    def _others(self, region: str) -> list[str]:
        return [other for other in self._world.regions if other != region]

    def _replicate(self, origin: str, to: str, put: object, what: object, row: object) -> None:
        world = self._world
        lag = world.rng.expovariate(1 / self._lag)
        if world.rng.random() < 0.02 and not world.is_quiet:
            lag = world.rng.uniform(0, 1500)
        world.bring(world.now + lag, self._arrive, origin, to, put, what, row)

    def _arrive(self, origin: str, to: str, put: object, what: object, row: object) -> None:
        world = self._world
        end = world.cuts.end(origin, to)
        if end > world.now:
            late = world.rng.uniform(0, world.rng.choice([5, 300, 1800]))
            world.bring(end + late, self._arrive, origin, to, put, what, row)
        else:
            assert callable(put)
            put(to, what, row)
