"""Carries out a region's plan through its brokers' management APIs. No decision is made here.

A broker that doesn't reply is named in the outcome. All other actions are done all the same, except
those that depend on a failed one. Brokers are called concurrently, each for a bounded time, so that
one that hangs delays no other.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
from collections.abc import Iterable, Mapping
from typing import Final

from newsfabric.brokers.management import Management, QueueState, ShovelState
from newsfabric.errors import ManagementError
from newsfabric.settings import Credentials, Fabric
from newsfabric.topics import TopicTable
from newsfabric.topology import (
    SHOVEL_QUEUES,
    Binding,
    Broker,
    Exchange,
    Queue,
    ShovelLink,
    brokers_of,
    mask,
    runs_shovels,
    shovel_value,
)
from shovels.places import BrokersView, RegionPlan, plan_now
from shovels.plan import Action, Actual, diff, must_wait

# The knowledge of brokers for a single reading: none, because no earlier one was made.
NOTHING_SEEN: Final = BrokersView()


@dataclasses.dataclass(frozen=True, slots=True)
class TriedAction:
    """An action that was tried; ``error`` is empty if it succeeded. Contains no login."""

    action: Action
    error: str = ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RegionState:
    """A region's plan and the actions that it needs, given the state of its brokers."""

    actions: tuple[Action, ...]
    plan: RegionPlan
    actual: Mapping[Broker, Actual]
    #: Why the state of the other brokers is unknown; ``unread`` are those of them that run.
    unreachable: Mapping[Broker, str]
    unread: frozenset[Broker]


@dataclasses.dataclass(frozen=True, slots=True)
class Status:
    """The shovels of one broker, wanted or not."""

    broker: Broker
    shovels: tuple[ShovelState, ...]


class ManagementClients:
    """The management APIs of a fabric's brokers. Use as an async context manager."""

    def __init__(
        self,
        fabric: Fabric,
        credentials: Credentials,
        *,
        shovels: Credentials | None = None,
        timeout: float = 5.0,
    ) -> None:
        """Set the login of shovels to ``shovels``, if it differs from ``credentials``.

        ``timeout``: seconds for all requests to a broker in one reading, and for each change.
        """
        self.fabric = fabric
        self.credentials = credentials
        self.shovels = shovels or credentials
        self.timeout = timeout
        self.apis = {
            broker: Management(node.management_url, credentials, timeout=timeout)
            for broker, node in brokers_of(fabric).items()
        }

    async def __aenter__(self) -> ManagementClients:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        for api in self.apis.values():
            api.close()

    def shovel_hosts(self, region: str) -> list[Broker]:
        """Return the brokers on which shovels of ``region`` may run."""
        return [broker for broker in self.apis if runs_shovels(region, broker.cluster)]


async def read_state(
    brokers: ManagementClients, region: str, topics: TopicTable, seen: BrokersView = NOTHING_SEEN
) -> RegionState:
    """Read the brokers and compare them with the plan of ``region``. Changes nothing.

    Brokers that were ``seen`` away aren't asked; a broker that doesn't reply counts as away. If it
    was seen running, it is unread.
    """
    asked = [broker for broker in brokers.apis if broker not in seen.away]
    read = await asyncio.gather(*(_read(brokers, region, broker) for broker in asked))
    found = dict(zip(asked, read, strict=True))
    actual = {broker: got for broker, got in found.items() if isinstance(got, Actual)}
    silent = {broker: got for broker, got in found.items() if isinstance(got, str)}
    unreachable = dict.fromkeys(seen.away, "it doesn't answer") | silent
    unread = seen.runs & silent.keys()
    known = dataclasses.replace(seen, away=frozenset(unreachable), unread=unread)
    plan = plan_now(brokers.fabric, region, topics, actual, known)
    return RegionState(
        actions=diff(region, plan.parts, actual, brokers.shovels),
        plan=plan,
        actual=actual,
        unreachable=unreachable,
        unread=unread,
    )


async def carry_out(brokers: ManagementClients, found: RegionState) -> list[TriedAction]:
    """Try every action of ``found`` that depends on no failed one, step by step.

    Requests to one broker are sent one after the other. A broker that doesn't reply gets no more of
    them until the next round.
    """
    done: list[TriedAction] = []
    silent: set[Broker] = set()
    for _, step in itertools.groupby(found.actions, lambda action: action.step):
        failed = [each.action for each in done if each.error]
        for_brokers: dict[Broker, list[Action]] = {}
        for action in step:
            if action.broker not in silent and not must_wait(action, failed):
                for_brokers.setdefault(action.broker, []).append(action)
        tried = await asyncio.gather(
            *(_try(brokers, each, silent) for each in for_brokers.values())
        )
        done += itertools.chain.from_iterable(tried)
    return done


async def restart(brokers: ManagementClients, broker: Broker, name: str) -> None:
    """Recreate the shovel ``name`` on ``broker``. ManagementError if that fails."""
    api = brokers.apis[broker]
    value = (await api.shovels()).get(name)
    if value is not None:
        await api.delete_shovel(name)
        await api.put_shovel(name, value)


async def states(brokers: ManagementClients, asked: Iterable[Broker]) -> dict[Broker, Status | str]:
    """Return the shovels of each broker with their reported states; a text if it is away."""
    wanted = list(asked)
    read = await asyncio.gather(*(_states(brokers, broker) for broker in wanted))
    return dict(zip(wanted, read, strict=True))


async def _try(
    brokers: ManagementClients, actions: Iterable[Action], silent: set[Broker]
) -> list[TriedAction]:
    """Try ``actions``, all of one broker; add it to ``silent`` if it doesn't reply."""
    done: list[TriedAction] = []
    for action in actions:
        try:
            await _perform(brokers.apis[action.broker], action, brokers.shovels)
        except ManagementError as exc:
            done.append(TriedAction(action, mask(str(exc))))
            if not exc.status:
                silent.add(action.broker)
                break
        else:
            done.append(TriedAction(action))
    return done


async def _perform(api: Management, action: Action, credentials: Credentials) -> None:
    match action.verb, action.wanted:
        case "delete", Binding() as binding:
            await api.delete_binding(binding)
        case "delete", _ if action.kind == "shovel":
            await api.delete_shovel(action.name)
        case "delete", _:
            # Another keeper may have just moved a shovel to it.
            await api.delete_queue(action.name, unused=True)
        case _, Exchange() as exchange:
            await api.put_exchange(exchange)
        case verb, Queue() as queue:
            if verb == "update":
                await api.delete_queue(queue.name)
            await api.put_queue(queue.name, queue.bounds.arguments())
        case _, Binding() as binding:
            await api.put_binding(binding)
        case _, ShovelLink() as link:
            await api.put_shovel(link.name, shovel_value(link, credentials))


async def _read(brokers: ManagementClients, region: str, broker: Broker) -> Actual | str:
    # Elsewhere shovels belong to others, and may not be read: their values contain passwords.
    ours = runs_shovels(region, broker.cluster)
    api = brokers.apis[broker]
    until = asyncio.get_running_loop().time() + brokers.timeout
    try:
        async with asyncio.timeout_at(until):
            found = Actual(
                exchanges=await api.exchanges(),
                queues=await _queues(api, broker),
                bindings=frozenset(await api.bindings()),
                shovels=await api.shovels() if ours else {},
                states={},
            )
    except ManagementError as exc:
        return mask(str(exc))
    except TimeoutError:
        return f"{api.url} doesn't answer within {brokers.timeout:g} s"
    if ours:
        # The component that runs its shovels may be dead while the broker is well: then none runs.
        try:
            async with asyncio.timeout_at(until):
                reported = await api.shovel_states()
        except (ManagementError, TimeoutError) as exc:
            found = dataclasses.replace(found, states_error=mask(str(exc)) or "no answer in time")
        else:
            states = {name: shovel.state for name, shovel in reported.items()}
            found = dataclasses.replace(found, states=states)
    return found


async def _queues(api: Management, broker: Broker) -> dict[str, QueueState]:
    if broker.cluster.role == "core":
        return await api.queues()
    # Publishers have thousands of queues there: a list of all would be too long.
    return await api.queues_beginning(SHOVEL_QUEUES)


async def _states(brokers: ManagementClients, broker: Broker) -> Status | str:
    try:
        found = await brokers.apis[broker].shovel_states()
    except ManagementError as exc:
        return mask(str(exc))
    return Status(broker, tuple(found[name] for name in sorted(found)))
