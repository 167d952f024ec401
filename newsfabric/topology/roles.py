"""The fabric's own users, each with no more rights than its service needs. Pure.

There is a user for each kind of service and for the shovels of each region, and one for each box.
Their rights follow from the topology, so that a service's actions and its rights can't disagree
(tests/attacks/test_box.py and the worlds of tests/e2e run with these users). Their names have a
dot, which no publisher's name has.

The decisions that a reader may question:

- Only keepers may declare exchanges: definitions contain these, and the keeper makes
  them again. So no other user may declare a queue under a name of its choice, but a box, which may
  bind nothing.
- A keeper has the tag ``policymaker`` where its shovels run, because it makes them. A user that may
  make shovels may do anything in that virtual host: RabbitMQ runs a shovel's own end as no
  particular user. In other regions a keeper has no such tag.
- Shovels log in as a user of their own: the broker that runs them stores their passwords, and may
  be a proxy cluster far away.
- Topic permissions don't hold for dead letters: a user who may read one exchange and write to
  another one can move messages there under any key. So give no user both without need.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, Literal

from newsfabric.errors import ConfigError
from newsfabric.kinds import CoreKind
from newsfabric.messages.control import canary_key, drain_key, load_key
from newsfabric.messages.mailbox import MARK_KEY
from newsfabric.messages.reports import report_key
from newsfabric.settings import Fabric
from newsfabric.topics import NOTES, TopicTable
from newsfabric.topology.parts import (
    BOX_QUEUES,
    FEEDS,
    MAILBOX_QUEUE,
    SHOVEL_QUEUES,
    box_queue,
    keeper_queues,
    router_queues,
)
from newsfabric.topology.plan import KeptShovel, region_links, runs_shovels, shovel_plan
from newsfabric.topology.rights import BOX_LIMITS, NAMED, User, beginning, exactly, topic_regex
from newsfabric.topology.values import (
    ALL,
    INTAKE,
    ORDERS,
    OUTBOUND,
    POSTOFFICE,
    PUBLISH,
    RECEIPTS,
    REJECTED,
    UPSTREAM,
    BrokerObjects,
    Cluster,
)

Service = Literal[CoreKind, "shovel", "box"]

_ANY: Final = ".*"


def user_name(service: Service, place: str) -> str:
    """Return the name of the user of ``service`` in region ``place`` (for a box: of that name)."""
    return f"{service}.{place}"


def vouches(user_id: str) -> bool:
    """Return whether ``user_id`` is a frontdesk's, which vouches for its messages' publishers."""
    return is_of("frontdesk", user_id)


def is_of(service: Service, user_id: str | None) -> bool:
    """Return whether ``user_id`` belongs to a ``service``, in any region."""
    return (user_id or "").startswith(user_name(service, ""))


def operator(name: str) -> User:
    """Return a person's user, with all rights, and the right to publish under any ``user_id``."""
    # RabbitMQ lets no administrator without this tag set another ``user_id``.
    tags = ("administrator", "impersonator")
    return User(name=name, tags=tags, configure=(_ANY,), write=(_ANY,), read=(_ANY,))


def cluster_users(
    fabric: Fabric, topics: TopicTable, cluster: Cluster, boxes: Iterable[str] = ()
) -> tuple[User, ...]:
    """Return the fabric's users on each broker of ``cluster``; ``boxes`` are the names of a core's.

    ConfigError if there is no such cluster.
    """
    region = cluster.region
    found: list[User] = []
    match cluster.role:
        case "core":
            fabric.region(region)
            found += [_router(region), _mailbox(region, topics), _reports(region)]
            found.append(_scaler(region))
            found += [core_box(region, box) for box in boxes]
        case "client":
            fabric.region(region)
            found.append(_http(region))
        case "proxy":
            if region not in {proxy.name for proxy in fabric.proxies}:
                raise ConfigError(f"no proxy cluster {region!r} in the fabric")
    for other in fabric.regions:
        found += _keeping(fabric, topics, cluster, other.name)
    return tuple(found)


def box_user(box: str) -> User:
    """Return the user of ``box`` on its own broker, where only gateway and agent work."""
    # For shovels, and for their state.
    tags = ("policymaker", "monitoring")
    return User(
        name=user_name("box", box), tags=tags, configure=(_ANY,), write=(_ANY,), read=(_ANY,)
    )


def core_box(region: str, box: str) -> User:
    """Return the user of ``box`` on the core of its region: reads its feeds, writes upstream."""
    own = tuple(exactly(box_queue(box, n)) for n in FEEDS)
    load, report = exactly(load_key(region, box)), exactly(report_key(region, box))
    return User(
        name=user_name("box", box),
        configure=own,
        write=(UPSTREAM,),
        read=own,
        topics={UPSTREAM: ((exactly(MARK_KEY), load, report), ())},
        limits=BOX_LIMITS,
    )


def _router(region: str) -> User:
    return User(
        name=user_name("router", region),
        write=(POSTOFFICE, OUTBOUND, REJECTED, RECEIPTS, UPSTREAM),
        read=tuple(map(exactly, router_queues())),
        topics={UPSTREAM: _reporting(region)},
    )


def _mailbox(region: str, topics: TopicTable) -> User:
    owned = (policy.pattern for policy in topics.policies if policy.access == "owner")
    writable = tuple(topic_regex(pattern) for pattern in (*owned, f"{NOTES}.{ALL}"))
    return User(
        name=user_name("mailbox", region),
        write=(INTAKE, REJECTED, UPSTREAM),
        read=(exactly(MAILBOX_QUEUE),),
        topics={INTAKE: (writable, ()), UPSTREAM: _reporting(region)},
    )


def _reports(region: str) -> User:
    """Return a frontdesk's user on the core: reads all reports, writes its own."""
    readable = (exactly(load_key(region, "*")), exactly(report_key(region, "*")))
    return User(
        name=user_name("frontdesk", region),
        configure=(NAMED,),
        write=(UPSTREAM, NAMED),
        read=(UPSTREAM, NAMED),
        topics={UPSTREAM: (_reporting(region)[0], readable)},
    )


def _scaler(region: str) -> User:
    """Return a scaler's user: reads load reports, orders drains of its region, writes reports."""
    return User(
        name=user_name("scaler", region),
        configure=(NAMED,),
        write=(ORDERS, UPSTREAM, NAMED),
        read=(UPSTREAM, NAMED),
        topics={
            ORDERS: ((topic_regex(drain_key(region, "*")),), ()),
            UPSTREAM: (_reporting(region)[0], (exactly(load_key(region, "*")),)),
        },
    )


def _reporting(region: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the keys of exchange ``upstream`` that a service of ``region`` may write and read."""
    return (topic_regex(report_key(region, "*")),), ()


def _http(region: str) -> User:
    """Return a frontdesk's user on the client cluster, where it publishes messages from HTTP."""
    return User(
        name=user_name("frontdesk", region),
        configure=(NAMED,),
        write=(PUBLISH,),
        read=(NAMED,),
    )


def _keeping(fabric: Fabric, topics: TopicTable, cluster: Cluster, region: str) -> Iterator[User]:
    """Yield the users of ``region``'s keeper and shovels on ``cluster``, of any region."""
    plan = shovel_plan(fabric, region, topics)
    parts = [part for broker, part in plan.items() if broker.cluster == cluster]
    if not parts:
        return
    part = sum(parts, BrokerObjects())
    sources = [link for link in region_links(fabric, region, topics) if link.source == cluster]
    queues = tuple(dict.fromkeys(map(_source_queues, sources)))
    exchanges = [exactly(exchange.name) for exchange in part.exchanges]
    own = [exactly(queue.name) for queue in part.queues if not _is_source(queue.name)]
    tags = ["monitoring"]
    if runs_shovels(region, cluster):
        # The keeper's queues, in which its canaries arrive.
        own.append(beginning(keeper_queues(region)))
        tags.append("policymaker")
    canaries = [link.exchange for link in sources]
    more: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {}
    if cluster == Cluster(region, "core"):
        # Boxes' queues, which the keeper binds, and exchanges under such names, which it removes.
        own.append(beginning(BOX_QUEUES))
        # Canaries for the boxes.
        canaries.append(POSTOFFICE)
        writable = (exactly(MARK_KEY), topic_regex(load_key(region, "*")))
        more[UPSTREAM] = (_reporting(region)[0], writable)
        more[RECEIPTS] = ((beginning(keeper_queues(region)),), (_ANY,))
    key = exactly(canary_key(region))
    yield User(
        name=user_name("keeper", region),
        tags=tuple(tags),
        configure=(*exchanges, *own, *queues),
        write=(*own, *queues, *canaries, *more),
        read=(*exchanges, *(link.exchange for link in sources), *own, *queues),
        topics=dict.fromkeys(canaries, ((key,), (_ANY,))) | more,
    )
    if queues:
        yield User(name=user_name("shovel", region), read=queues)


def _is_source(queue: str) -> bool:
    return queue.startswith(SHOVEL_QUEUES)


def _source_queues(link: KeptShovel) -> str:
    """Return an expression for ``link``'s source queue and the queues of similar links."""
    return beginning(link.queue.name.rpartition(".")[0] + ".")
