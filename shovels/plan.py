"""The difference between a region's plan and the objects on its brokers, as ordered actions.

Pure: the same two values give the same actions. So any number of keepers may work at once, and none
undoes the work of another. An object that isn't in the plan is deleted only if its *name* shows
that it is this region's shovel or source queue. All other objects on the broker belong to others.

Bindings are compared for wanted queues alone: the deletion of a queue deletes its bindings.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Literal

from newsfabric.brokers.management import QueueState
from newsfabric.settings import Credentials
from newsfabric.topology import (
    Binding,
    Broker,
    BrokerObjects,
    Exchange,
    Queue,
    ShovelLink,
    mask,
    owned_queue,
    owned_shovel,
    shovel_value,
)

Verb = Literal["create", "update", "delete"]
Kind = Literal["exchange", "queue", "binding", "shovel"]

# A shovel needs both its ends: destination exchange, source queue, bindings, then the shovel.
# Deletions are in the opposite order, and after all creations, so that replacing a binding leaves
# no gap.
_ORDER: Final[Mapping[tuple[Verb, Kind], int]] = {
    ("create", "exchange"): 0,
    ("update", "exchange"): 0,
    ("create", "queue"): 1,
    ("update", "queue"): 1,
    ("create", "binding"): 2,
    ("create", "shovel"): 3,
    ("update", "shovel"): 3,
    ("delete", "shovel"): 4,
    ("delete", "binding"): 5,
    ("delete", "queue"): 6,
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Actual:
    """The present objects on one broker.

    ``shovels`` are the parameters' values as the broker returns them, with passwords. ``states``:
    shovel → its reported state; ``states_error``: the reason why these can't be read, if so.
    """

    exchanges: Mapping[str, str]
    queues: Mapping[str, QueueState]
    bindings: frozenset[Binding]
    shovels: Mapping[str, Mapping[str, Any]] = dataclasses.field(repr=False)
    states: Mapping[str, str]
    states_error: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Change:
    """A field that differs, as text to be shown: logins are masked. None: the field is missing."""

    field: str
    before: str | None
    after: str | None


@dataclasses.dataclass(frozen=True, slots=True)
class Action:
    """A step from the actual to the wanted state of ``broker``.

    ``wanted`` is the object for create and update; for delete it is the binding, or None (``name``
    is enough). An update of a queue deletes it first, with its messages.
    """

    broker: Broker
    verb: Verb
    kind: Kind
    name: str
    wanted: Exchange | Queue | Binding | ShovelLink | None = None
    changes: tuple[Change, ...] = ()

    @property
    def step(self) -> int:
        """The order of the action: lower steps first, on all brokers; one step in any order."""
        return _ORDER[self.verb, self.kind]


def diff(
    region: str,
    wanted: Mapping[Broker, BrokerObjects],
    actual: Mapping[Broker, Actual],
    credentials: Credentials,
) -> tuple[Action, ...]:
    """Return the actions that make the brokers in ``actual`` as ``region`` wants, in safe order.

    A broker that isn't in ``actual`` can't be reached: no action is for it now.
    """
    actions: list[Action] = []
    for broker, found in actual.items():
        part = wanted.get(broker, BrokerObjects())
        actions += _exchanges(broker, part, found)
        actions += _queues(region, broker, part, found)
        actions += _bindings(broker, part, found)
        actions += _shovels(region, broker, part, found, credentials)
    return tuple(sorted(actions, key=lambda action: (action.step, action.broker, action.name)))


def must_wait(action: Action, failed: Iterable[Action]) -> bool:
    """Return whether ``action`` must wait for another round, because of the ``failed`` ones.

    Creations don't wait: one failure must not prevent all others. Nothing is deleted while an
    object of the same name, on any broker, couldn't be made: that object may be its replacement.
    """
    moves = action.verb == "update" and isinstance(action.wanted, ShovelLink)
    if action.verb != "delete" and not moves:
        return False
    return any(each.verb != "delete" and _about(each) & _about(action) for each in failed)


def _about(action: Action) -> frozenset[str]:
    """Return the queue or shovel that ``action`` is about; for a new shovel also its queue."""
    match action.wanted:
        case Binding() as binding:
            return frozenset({binding.queue})
        case ShovelLink() as link:
            return frozenset({link.name, link.queue.name})
    return frozenset({action.name})


def binding_name(binding: Binding) -> str:
    """Return a binding in one line: ``publish -#-> shovel.publish.oregon.1``."""
    return f"{binding.exchange} -{binding.key}-> {binding.queue}"


def _exchanges(broker: Broker, part: BrokerObjects, found: Actual) -> Iterator[Action]:
    for exchange in part.exchanges:
        type_now = found.exchanges.get(exchange.name)
        if type_now == exchange.type:
            continue
        verb: Verb = "create" if type_now is None else "update"
        changes = (Change("type", type_now, exchange.type),)
        yield Action(broker, verb, "exchange", exchange.name, exchange, changes)


def _queues(region: str, broker: Broker, part: BrokerObjects, found: Actual) -> Iterator[Action]:
    for queue in part.queues:
        state = found.queues.get(queue.name)
        before = {} if state is None else state.arguments
        changes = _changes(before, queue.bounds.arguments())
        if state is None or changes:
            verb: Verb = "create" if state is None else "update"
            yield Action(broker, verb, "queue", queue.name, queue, changes)
    unwanted = found.queues.keys() - {queue.name for queue in part.queues}
    for name in unwanted:
        if owned_queue(region, broker.cluster, name):
            yield Action(broker, "delete", "queue", name)


def _bindings(broker: Broker, part: BrokerObjects, found: Actual) -> Iterator[Action]:
    wanted = frozenset(part.bindings)
    for binding in wanted - found.bindings:
        yield Action(broker, "create", "binding", binding_name(binding), binding)
    ours = {queue.name for queue in part.queues}
    for binding in found.bindings - wanted:
        if binding.queue in ours:
            yield Action(broker, "delete", "binding", binding_name(binding), binding)


def _shovels(
    region: str, broker: Broker, part: BrokerObjects, found: Actual, credentials: Credentials
) -> Iterator[Action]:
    for link in part.shovels:
        before = found.shovels.get(link.name)
        changes = _changes(before or {}, shovel_value(link, credentials))
        if before is None or changes:
            verb: Verb = "create" if before is None else "update"
            yield Action(broker, verb, "shovel", link.name, link, changes)
    kept = {link.name for link in part.shovels}
    for name in found.shovels.keys() - kept:
        if owned_shovel(region, broker.cluster, name):
            yield Action(broker, "delete", "shovel", name)


def _changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[Change, ...]:
    """Return the fields that differ, in order of name."""
    return tuple(
        _change(field, before.get(field), after.get(field))
        for field in sorted(before.keys() | after.keys())
        if before.get(field) != after.get(field)
    )


def _change(field: str, before: Any, after: Any) -> Change:
    was, will = _shown(before), _shown(after)
    # URIs may differ only in their masked part: without the note no change would be visible.
    return Change(field, was, f"{will} (another login)" if was == will else will)


def _shown(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, dict):
        value = ", ".join(f"{key}={value[key]}" for key in sorted(value))
    elif isinstance(value, list):
        value = ", ".join(map(str, value))
    return mask(str(value))
