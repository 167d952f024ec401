"""Every metric of the fabric as a value: its name, type, labels, unit, meaning and processes.

Metrics are declared with literals (:mod:`newsfabric.metrics`), so the catalogue is read from the
source, not from a running process: no process imports all services. :func:`declared` reads one
file, :func:`breaches` lists a metric's breaches of the naming scheme.

The scheme is ``newsfabric_<process kind>_<noun>_<unit>``. A part that several kinds of process
share (``amqp``, ``store``) replaces the kind. A counted thing is a plural noun.
"""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal

from newsfabric.kinds import BOX, CORE, KINDS
from newsfabric.topics import CLASSES

PREFIX: Final = "newsfabric_"
#: Packages that declare metrics.
PACKAGES: Final = ("newsfabric", "operations", "gateway", "wholesale", "retail", "shovels")

#: The processes that have the metrics of each first word.
PROCESSES: Final[Mapping[str, tuple[str, ...]]] = {
    "amqp": tuple(KINDS),
    "store": tuple(kind for kind, row in KINDS.items() if row.store),
    "service": tuple(KINDS),
    "tls": (*CORE, *BOX),
    "traces": ("router", "gateway"),
    "reader": ("mirror",),
    **{row.metrics: (kind,) for kind, row in KINDS.items()},
}

#: Every label, and the reason why its values are few. No label has values that a stranger chooses.
LABELS: Final[Mapping[str, str]] = {
    "action": "a verb (`setmark`: ack, read and dismiss), or a call of a driver",
    "alarm": "`memory` or `disk`",
    "class": "a topic's class: " + ", ".join(f"`{name}`" for name in CLASSES),
    "cluster": "a cluster of brokers, as `oregon/core`",
    "code": "an error code of the protocol",
    "command": "an agent's command for a feed",
    "gateways": "`some` or `none`",
    "kind": "the object of a keeper's change (queue, binding, shovel); a scaler's view of a box",
    "mark": "`ack`, `read` or `dismiss`",
    "node": "a broker of the fabric",
    "origin": "a region",
    "outcome": "the outcome, from a list in the code",
    "place": "`first`, `later` or `again`",
    "policy": "the policy of `topics.toml` for slow readers",
    "reason": "a reason from a list in the code",
    "result": "the result of a resume",
    "shovel": "a shovel of the topology",
    "side": "`here`, the original, or `there`, the other fabric",
    "stage": "a stage of the router",
    "status": "a status of an HTTP answer",
    "thread": "the number of an I/O thread",
    "version": "the running release",
    "transport": "a reader's transport",
    "use": "`authority`, `server` or `client`",
    "verb": "a keeper's change",
    "way": "shovels; `direct` for none, `store` for read messages, `other` above the limit",
    "while": "`routed` or `under_way`",
    "why": "a reason from a list in the code",
}

# Functions that declare a metric, and its type.
_DECLARERS: Final[Mapping[str, Literal["counter", "gauge", "histogram"]]] = {
    "counter": "counter",
    "counted": "counter",
    "gauge": "gauge",
    "histogram": "histogram",
    "bulk_histogram": "histogram",
}
_NAME: Final = re.compile(r"[a-z]+(_[a-z0-9]+)+")
# A gauge may end in one of these in place of a unit or a plural: a state of the thing before it.
_STATES: Final = frozenset({"open", "running", "wanted", "ready", "seq", "info"})
_UNITS: Final = frozenset({"seconds", "bytes", "ratio"})
# Prometheus keeps base units: seconds and bytes, not thousands or millions of them.
_NOT_UNITS: Final = frozenset(
    {
        "ms",
        "millis",
        "milliseconds",
        "micros",
        "minutes",
        "hours",
        "kb",
        "kib",
        "mb",
        "mib",
        "percent",
    }
)
# Suffixes that Prometheus and its exposition formats add to names by themselves.
_ENDINGS: Final = frozenset({"total", "created", "count", "sum", "bucket"})


class Undeclarable(ValueError):
    """An error: a declaration that can't be read without running it."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A metric. ``name`` is the family's, as in ``/metrics``, without a counter's ``_total``."""

    name: str
    type: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    meaning: str
    declared_in: str

    @property
    def full_name(self) -> str:
        """The name in a query: with a counter's ``_total``."""
        return f"{self.name}_total" if self.type == "counter" else self.name

    @property
    def unit(self) -> str:
        """The unit: ``seconds``, ``bytes``, ``ratio``; else the counted thing, or ``number``."""
        last = self.name.rpartition("_")[2]
        return last if last in _UNITS or last.endswith("s") else "number"

    @property
    def kind(self) -> str:
        """The first word after the prefix: a kind of process, or a part that several share."""
        return self.name.removeprefix(PREFIX).partition("_")[0]

    @property
    def processes(self) -> tuple[str, ...]:
        """The kinds of process that have the metric."""
        return PROCESSES[self.kind]


def declared(path: str, source: str) -> Iterator[Metric]:
    """Yield the metrics that one Python file declares; :class:`Undeclarable` if one can't be read.

    A declaration is a call of ``metrics.counter``, ``metrics.counted``, ``metrics.gauge``,
    ``metrics.histogram`` or ``metrics.bulk_histogram``.
    """
    if "metrics." not in source:
        # Most files declare none, and parsing all files takes seconds.
        return
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="metrics"), attr=declarer)) if (
                declarer in _DECLARERS
            ):
                yield _metric(path, declarer, node)


def declared_in_tree(root: Path) -> list[Metric]:
    """Return the metrics of all packages below ``root``, a checkout, by their names."""
    files = (file for package in PACKAGES for file in (root / package).rglob("*.py"))
    found = (declared(str(file.relative_to(root)), file.read_text()) for file in files)
    return sorted((metric for each in found for metric in each), key=lambda metric: metric.name)


def breaches(metric: Metric) -> Iterator[str]:
    """Yield the breaches of the naming scheme in ``metric``, one sentence each."""
    bare = metric.name.removeprefix(PREFIX)
    words = bare.split("_")
    if not _NAME.fullmatch(bare):
        yield "a name is small words with a line between them, two at least"
    if words[0] not in PROCESSES:
        yield f"{words[0]} is no kind of process"
    if words[-1] in _ENDINGS:
        yield f"Prometheus itself puts _{words[-1]} at the end"
    if _NOT_UNITS & set(words):
        yield "units are seconds and bytes"
    if metric.type == "counter" and not words[-1].endswith("s"):
        yield f"{words[-1]} isn't the counted thing: end with a plural"
    if metric.type == "gauge" and not _says_what(words):
        yield f"{words[-1]} is neither a unit nor a plural nor a known state"
    for label in metric.labels:
        if label not in LABELS:
            yield f"label {label} isn't in LABELS, which gives the bound of its values"
    if not metric.meaning:
        yield "a metric without a meaning"


def _says_what(words: list[str]) -> bool:
    """Return whether a gauge's name ends in a unit, a plural or a known state."""
    return words[-1].endswith("s") or words[-1] in _UNITS | _STATES


def _metric(path: str, declarer: str, call: ast.Call) -> Metric:
    try:
        positional: list[Any] = [ast.literal_eval(argument) for argument in call.args]
        named = {word.arg: ast.literal_eval(word.value) for word in call.keywords if word.arg}
    except ValueError as exc:
        raise Undeclarable(f"{path}:{call.lineno}: a metric is declared with literals") from exc
    fields = dict(zip(("name", "help", "labels"), positional, strict=False)) | named
    name, type_ = PREFIX + fields["name"], _DECLARERS[declarer]
    return Metric(
        name=f"{name}_seconds" if type_ == "histogram" else name,
        type=type_,
        labels=tuple(fields.get("labels", ())),
        meaning=fields["help"].rstrip("."),
        declared_in=path,
    )
