"""The part of a simulated router that closes the logs of others in its region."""

from __future__ import annotations

from logmodel.directory import DirectoryRow, ModelEnding
from logmodel.protocols import AnyRouter, AnyWorld
from logmodel.rows import ModelRow
from newsfabric.store.logs import Log


class Closer:
    """A watcher of its router's region in the directory; it closes logs whose row doesn't move."""

    def __init__(self, world: AnyWorld, router: AnyRouter) -> None:
        self._world = world
        self._router = router
        self._region = router.region
        self._closing = world.parts.closing(router.region, router.name, window=world.window)

    def watch(self) -> None:
        """Look at every open log of the directory, and again some seconds later."""
        world = self._world
        self._router.later(world.pause(5, 15, quiet=20), self.watch)
        self._router.compare_clocks()
        if world.stores.is_down(self._region):
            return
        mine = self._router.numbering.log
        store = world.stores[self._region]
        for log in store.open_logs:
            row = store.directory[log]
            if log != mine and self._closing.may_close(log, row, world.now):
                self._close(log, row)

    def _close(self, log: Log, row: DirectoryRow) -> None:
        store = self._world.stores[self._region]
        ending, messages = self._closing.end_of(row, lambda n: store.rows_of((log, n)))
        pause = self._world.rng.choice([0.05, 0.3, 3.0])
        self._router.later(pause, self._ask_to_close, log, row, ending, messages)

    def _ask_to_close(
        self, log: Log, row: DirectoryRow, ending: ModelEnding, messages: list[ModelRow]
    ) -> None:
        # The transaction is sent: it is applied even if this router dies now.
        self._world.at(self._world.now + 0.05, self._apply_close, log, row, ending, messages)

    def _apply_close(
        self, log: Log, watched: DirectoryRow, ending: ModelEnding, messages: list[ModelRow]
    ) -> None:
        world = self._world
        row = world.stores[self._region].directory.get(log)
        if row is None or world.stores.is_down(self._region):
            return
        closed = self._router.directory.closed(watched, row, ending)
        if closed is None:
            return
        for message in messages:
            world.book.is_routed(message.identity, message.topic, world.now)
        world.stores.write_directory(self._region, log, closed)
        world.book.concluded(log, self._region)
