"""The kinds of processes, a row for each. Pure values.

Users at brokers, reports, metrics and the programs of a world are made from this table. Files that
can't read Python (Ansible, Helm) name the same kinds, and tests/test_kinds.py names each file that
lacks one.

A data plane isn't in it: it belongs to its gateway, serves no pages and has no user.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Final, Literal, get_args

#: Services of a region's core, in the order of their restarts.
CoreKind = Literal["keeper", "frontdesk", "scaler", "router", "mailbox"]
#: Services of a box.
BoxKind = Literal["agent", "gateway"]
Kind = Literal[CoreKind, BoxKind, "mirror"]
CORE: Final[tuple[CoreKind, ...]] = get_args(CoreKind)
BOX: Final[tuple[BoxKind, ...]] = get_args(BoxKind)

#: Rights at the store: routers and mailbox services write; those that strangers talk to only read.
StoreRight = Literal["", "reader", "writer"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A kind of process.

    ``command`` follows ``python -m``; its last word begins the names of the kind's metrics. On a
    host ``port`` serves health and metrics. ``several``: a host has any number of the kind, and the
    n-th serves ``port + n``. ``topics``: it reads topics.toml. ``word`` replaces the kind in names
    of processes and units.
    """

    title: str
    command: str
    port: int
    several: bool = False
    topics: bool = False
    store: StoreRight = ""
    word: str = ""

    @property
    def metrics(self) -> str:
        """The first word of the kind's own metrics."""
        return self.command.split()[-1]


KINDS: Final[Mapping[Kind, Row]] = {
    "keeper": Row(
        title="keeper of shovels", command="shovels", port=9102, topics=True, word="shovels"
    ),
    "frontdesk": Row(
        title="frontdesk", command="wholesale frontdesk", port=9101, topics=True, store="reader"
    ),
    "scaler": Row(title="scaler", command="wholesale scaler", port=9103),
    "router": Row(
        title="router",
        command="wholesale router",
        port=9110,
        several=True,
        topics=True,
        store="writer",
    ),
    "mailbox": Row(
        title="mailbox service",
        command="wholesale mailbox",
        port=9120,
        several=True,
        topics=True,
        store="writer",
    ),
    "gateway": Row(title="gateway", command="gateway", port=9104, topics=True, store="reader"),
    "agent": Row(title="a box's agent", command="retail", port=9105),
    "mirror": Row(title="mirror", command="newsfabric mirror", port=0),
}


def word(kind: Kind) -> str:
    """Return the word for ``kind`` in the names of processes and units."""
    return KINDS[kind].word or kind
