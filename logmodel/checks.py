"""The invariants L1 to L5 of the design, checked against the true events.

The book checks L5 at each closing, and readers check L3 ("twice") at each message. L4 is checked at
each reply, and the rest at the end of a history, when all is healed.
"""

from __future__ import annotations

from collections.abc import Sequence

from logmodel.book import InvariantBroken
from logmodel.protocols import AnyGateway, AnyReader, AnyWorld
from logmodel.rows import VOID, Copy, ModelRow


def check_end(world: AnyWorld) -> None:
    """Check everything that must be true once all is healed."""
    check_receipts(world)
    check_withheld(world)
    for gateway in world.gateways:
        check_marks(world, gateway)
    for reader in [*world.readers, *world.ghosts]:
        check_owed(world, reader)


def check_receipts(world: AnyWorld) -> None:
    """Check L1: a number confirmed to a publisher has its rows, is in its log, and isn't void."""
    for copies in world.book.receipts.values():
        for copy in copies:
            log, number = copy
            name = f"{log.router}/{number}"
            if not _is_message(world, copy):
                raise InvariantBroken("L1", f"{name} has a receipt and not its rows")
            row = world.stores[log.region].directory.get(log)
            if row is None or number in row.voids:
                raise InvariantBroken("L1", f"{name} has a receipt, and is void or of no log")
            if row.ended is not None and number > max(row.low, row.ended):
                raise InvariantBroken("L1", f"{name} has a receipt, and its log ended before it")


def check_marks(world: AnyWorld, gateway: AnyGateway) -> None:
    """Check L2: no mark passed a message that wasn't offered; L3: no number is missing."""
    for known in gateway.logs:
        log = known.log
        row = world.stores[log.region].directory.get(log)
        for number in range(known.start + 1, known.mark + 1):
            copy = (log, number)
            if copy in gateway.offered:
                continue
            is_within = row is not None and row.ended is not None and number <= row.ended
            if copy in world.book.published or (
                is_within and row and number not in row.voids and _is_message(world, copy)
            ):
                raise InvariantBroken(
                    "L2", f"a mark passed {log.router}/{number}, which was never offered"
                )
        missing = known.missing()
        if missing:
            raise InvariantBroken(
                "L3", f"a gateway in {gateway.region} still lacks {log.router}/{missing}"
            )


def check_owed(world: AnyWorld, reader: AnyReader) -> None:
    """Check L3: a connected reader got everything; and L4: so did a reader that resumed."""
    gateway = reader.gateway
    if reader.owed_since is None or gateway is None or not gateway.is_alive:
        return
    lacks = [identity for identity in _owed(world, reader) if identity not in reader.got]
    if lacks:
        invariant = "L4" if reader.keeps_position else "L3"
        raise InvariantBroken(invariant, f"a {reader} never got the messages {lacks[:5]}")


def check_answer(
    world: AnyWorld, gateway: AnyGateway, reader: AnyReader, given: Sequence[int]
) -> None:
    """Check L4: with ``recovered: true``, a reader has or is given all that is past here."""
    for identity in _owed(world, reader):
        if identity in reader.got or identity in given:
            continue
        for copy in world.book.copies[identity]:
            if gateway.logs.was_given(*copy) and _is_message(world, copy):
                raise InvariantBroken(
                    "L4",
                    f"recovered: true without message {identity} ({copy[0].router}/{copy[1]})",
                )

    _note_withheld(world, gateway, reader, given)


def _note_withheld(
    world: AnyWorld, gateway: AnyGateway, reader: AnyReader, given: Sequence[int]
) -> None:
    """Note copies already offered here whose rows aren't at home yet: the rows may still arrive."""
    book = world.book
    has = reader.got.union(given, reader.past)
    for copy in gateway.offered:
        identity = book.identity_of[copy]
        if identity not in has and identity not in book.routed and not _is_message(world, copy):
            book.withheld[copy, reader.topic] = None


def check_withheld(world: AnyWorld) -> None:
    """Check L4 again: a noted copy that became a message isn't sent live, as it was offered."""
    for copy, topic in world.book.withheld:
        routed = world.book.routed.get(world.book.identity_of[copy])
        if routed is not None and routed[1] == topic and _is_message(world, copy):
            log, number = copy
            raise InvariantBroken(
                "L4", f"recovered: true without {log.router}/{number}, which was offered there"
            )


def _owed(world: AnyWorld, reader: AnyReader) -> list[int]:
    since = reader.owed_since
    assert since is not None
    return [
        identity
        for identity, (at, topic) in world.book.routed.items()
        if topic == reader.topic and at > since and identity not in reader.past
    ]


def _is_message(world: AnyWorld, copy: Copy) -> bool:
    row: ModelRow | None = world.stores[copy[0].region].find(copy)
    return row is not None and row is not VOID
