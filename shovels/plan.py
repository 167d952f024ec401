"""The difference between what a region wants on a cluster and what is there, as ordered actions.

Pure: the same two values give the same actions, so any number of keepers may work at once and
none undoes what another did. What isn't in the plan is removed only when its *name* says
that it is this region's shovel or source queue; everything else on the broker is somebody else's.

Bindings are compared for wanted queues alone: a queue that isn't wanted takes its own with it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Literal

from newsfabric.management import QueueState
from newsfabric.settings import Credentials
from newsfabric.topology import (
    Binding,
    Cluster,
    Exchange,
    Part,
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
# What goes is taken away in the opposite order, and after all that comes, so that a binding that
# replaces another leaves no gap.
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
    """What is on one cluster now.

    ``shovels`` are the parameters' values as the broker gives them, passwords included.
    """

    exchanges: Mapping[str, str]
    queues: Mapping[str, QueueState]
    bindings: frozenset[Binding]
    shovels: Mapping[str, Mapping[str, Any]] = dataclasses.field(repr=False)
    nodes: Mapping[str, bool]
    """Erlang node names (``name@host``), and whether each runs."""

    def running(self) -> frozenset[str]:
        """Names of the nodes that run, without their hosts."""
        return frozenset(short_name(node) for node, up in self.nodes.items() if up)


@dataclasses.dataclass(frozen=True, slots=True)
class Change:
    """One field that differs, as text fit to be shown: logins are masked. None: there is none."""

    field: str
    before: str | None
    after: str | None


@dataclasses.dataclass(frozen=True, slots=True)
class Action:
    """One step from actual to wanted on ``cluster``.

    ``wanted`` is the object for create and update; for delete it is the binding, or None
    (``name`` says it all). An update of a queue deletes it first, with what is in it.
    """

    cluster: Cluster
    verb: Verb
    kind: Kind
    name: str
    wanted: Exchange | Queue | Binding | ShovelLink | None = None
    changes: tuple[Change, ...] = ()

    @property
    def order(self) -> tuple[int, Cluster, str]:
        """Sorting by this is the order in which actions are safe, clusters taken together."""
        return _ORDER[self.verb, self.kind], self.cluster, self.name


def diff(
    region: str,
    wanted: Mapping[Cluster, Part],
    actual: Mapping[Cluster, Actual],
    credentials: Credentials,
) -> tuple[Action, ...]:
    """The actions that make the clusters in ``actual`` what ``region`` wants, in safe order.

    A cluster that isn't in ``actual`` can't be reached: nothing is done there now.
    """
    actions: list[Action] = []
    for cluster, found in actual.items():
        part = wanted.get(cluster, Part())
        actions += _exchanges(cluster, part, found)
        actions += _queues(region, cluster, part, found)
        actions += _bindings(cluster, part, found)
        actions += _shovels(region, cluster, part, found, credentials)
    return tuple(sorted(actions, key=lambda action: action.order))


def must_wait(action: Action, failed: Iterable[Action]) -> bool:
    """Whether ``action`` must wait for another round, since those of ``failed`` came to nothing.

    What is made doesn't wait, lest one fault keep everything from being made.
    """
    if action.verb == "delete":
        return any(each.verb != "delete" for each in failed)
    # A shovel that moves nothing yet harms nobody; one that works mustn't change to a queue that
    # isn't there or gets nothing.
    moves = action.verb == "update" and isinstance(action.wanted, ShovelLink)
    return moves and any(_source_of(action) == _made_by(each) for each in failed)


def _source_of(action: Action) -> str | None:
    return action.wanted.queue.name if isinstance(action.wanted, ShovelLink) else None


def _made_by(action: Action) -> str | None:
    """The queue that ``action`` would have made or bound."""
    match action.wanted:
        case Queue() as queue:
            return queue.name
        case Binding() as binding:
            return binding.queue
    return None


def short_name(erlang_node: str) -> str:
    """``oregon-core-1`` of ``oregon-core-1@localhost``."""
    return erlang_node.partition("@")[0]


def binding_name(binding: Binding) -> str:
    """A binding in one line: ``publish -#-> shovel.publish.oregon.1``."""
    return f"{binding.exchange} -{binding.key}-> {binding.queue}"


def _exchanges(cluster: Cluster, part: Part, found: Actual) -> Iterator[Action]:
    for exchange in part.exchanges:
        type_now = found.exchanges.get(exchange.name)
        if type_now == exchange.type:
            continue
        verb: Verb = "create" if type_now is None else "update"
        changes = (Change("type", type_now, exchange.type),)
        yield Action(cluster, verb, "exchange", exchange.name, exchange, changes)


def _queues(region: str, cluster: Cluster, part: Part, found: Actual) -> Iterator[Action]:
    for queue in part.queues:
        state = found.queues.get(queue.name)
        before = {} if state is None else _queue_fields(state.arguments, short_name(state.home))
        # Without a home any will do.
        home = queue.home or before.get("home")
        changes = _changes(before, _queue_fields(queue.bounds.arguments(), home))
        if state is None or changes:
            verb: Verb = "create" if state is None else "update"
            yield Action(cluster, verb, "queue", queue.name, queue, changes)
    unwanted = found.queues.keys() - {queue.name for queue in part.queues}
    for name in filter(lambda name: owned_queue(region, cluster, name), unwanted):
        # On a node that is down it can't be deleted; it goes when the node is back.
        if short_name(found.queues[name].home) in found.running():
            yield Action(cluster, "delete", "queue", name)


def _bindings(cluster: Cluster, part: Part, found: Actual) -> Iterator[Action]:
    running = found.running()
    # Of a queue on a node that is down neither bindings nor their absence can be seen or mended.
    out = {n for n, state in found.queues.items() if short_name(state.home) not in running}
    wanted = frozenset(binding for binding in part.bindings if binding.queue not in out)
    for binding in wanted - found.bindings:
        yield Action(cluster, "create", "binding", binding_name(binding), binding)
    ours = {queue.name for queue in part.queues} - out
    for binding in found.bindings - wanted:
        if binding.queue in ours:
            yield Action(cluster, "delete", "binding", binding_name(binding), binding)


def _shovels(
    region: str, cluster: Cluster, part: Part, found: Actual, credentials: Credentials
) -> Iterator[Action]:
    for link in part.shovels:
        before = found.shovels.get(link.name)
        changes = _changes(before or {}, shovel_value(link, credentials))
        if before is None or changes:
            verb: Verb = "create" if before is None else "update"
            yield Action(cluster, verb, "shovel", link.name, link, changes)
    kept = {link.name for link in part.shovels}
    for name in found.shovels.keys() - kept:
        if owned_shovel(region, cluster, name):
            yield Action(cluster, "delete", "shovel", name)


def _queue_fields(arguments: Mapping[str, Any], home: str | None) -> dict[str, Any]:
    return dict(arguments) | ({} if home is None else {"home": home})


def _changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[Change, ...]:
    """Fields that differ, in order of name."""
    return tuple(
        _change(field, before.get(field), after.get(field))
        for field in sorted(before.keys() | after.keys())
        if before.get(field) != after.get(field)
    )


def _change(field: str, before: Any, after: Any) -> Change:
    was, will = _shown(before), _shown(after)
    # URIs that differ in what is masked only: say so, or the change would look like none.
    return Change(field, was, f"{will} (another login)" if was == will else will)


def _shown(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, dict):
        value = ", ".join(f"{key}={value[key]}" for key in sorted(value))
    elif isinstance(value, list):
        value = ", ".join(map(str, value))
    return mask(str(value))
