"""Exchanges, queues, bindings and shovels of the fabric, as values. No I/O.

Everything that declares something on a broker takes it from here: ``definitions.json`` of a
fresh node, the services' declarations over AMQP, the shovels' plan and a box's agent. So broker and
program can't disagree, and a change in topology is one diff.

A classic queue lives on one node (its *home*) and can be neither read nor redeclared while that
node is down. Hence the two questions a reader will ask: why queues have homes, and why important
ones come in pairs. docs/design/0001-shovels-and-queues.md answers both, and says what
happens at each bound.
"""

from __future__ import annotations

from newsfabric.topology.forms import (
    client_definitions,
    core_definitions,
    declare_client,
    declare_core,
    declare_part,
    declare_retail,
    mask,
    retail_definitions,
    shovel_value,
)
from newsfabric.topology.parts import (
    CLIENT,
    CORE_EXCHANGES,
    FRONTDESK_QUEUES,
    RETAIL,
    SCALER_QUEUES,
    box_feed,
    box_loads_queue,
    box_part,
    box_queue,
    box_upstream,
    core,
    keeper_queues,
    mailbox_queues,
    owned_box_shovel,
    router_queue,
    router_queues,
)
from newsfabric.topology.plan import (
    Link,
    owned_queue,
    owned_shovel,
    region_links,
    runs_shovels,
    shovel_plan,
    takes_gold_alone,
)
from newsfabric.topology.values import (
    ALL,
    DIRECT,
    GATEWAY_QUEUE,
    INTAKE,
    OUTBOUND,
    POSTOFFICE,
    PUBLISH,
    RECEIPTS,
    REJECTED,
    UPSTREAM,
    UPSTREAM_QUEUE,
    VHOST,
    Binding,
    Bounds,
    Cluster,
    Exchange,
    Part,
    Queue,
    Role,
    ShovelLink,
)

__all__ = [
    "ALL",
    "CLIENT",
    "CORE_EXCHANGES",
    "DIRECT",
    "FRONTDESK_QUEUES",
    "GATEWAY_QUEUE",
    "INTAKE",
    "OUTBOUND",
    "POSTOFFICE",
    "PUBLISH",
    "RECEIPTS",
    "REJECTED",
    "RETAIL",
    "SCALER_QUEUES",
    "UPSTREAM",
    "UPSTREAM_QUEUE",
    "VHOST",
    "Binding",
    "Bounds",
    "Cluster",
    "Exchange",
    "Link",
    "Part",
    "Queue",
    "Role",
    "ShovelLink",
    "box_feed",
    "box_loads_queue",
    "box_part",
    "box_queue",
    "box_upstream",
    "client_definitions",
    "core",
    "core_definitions",
    "declare_client",
    "declare_core",
    "declare_part",
    "declare_retail",
    "keeper_queues",
    "mailbox_queues",
    "mask",
    "owned_box_shovel",
    "owned_queue",
    "owned_shovel",
    "region_links",
    "retail_definitions",
    "router_queue",
    "router_queues",
    "runs_shovels",
    "shovel_plan",
    "shovel_value",
    "takes_gold_alone",
]
