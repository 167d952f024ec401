"""Texts of a mirror: a line every few seconds, a table and lines at the end. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from newsfabric.topics import CLASSES
from operations.mirror.share_record import SIDES, ShareRecord, Side

_SHOWN: Final = 200

#: The columns of the table.
COLUMNS: Final = (
    "class", "side", "watched", "delivered", "missing", "doubled", "delay p50", "delay p99",
)  # fmt: skip


def recent(record: ShareRecord, side: Side, part: float) -> float | None:
    """Return the delay of the last interval in ms: the largest of the classes'."""
    each = (class_sums.sides[side].recent.ms(part) for class_sums in record.by_class.values())
    return max((ms for ms in each if ms is not None), default=None)


def live_line(document: Mapping[str, Any], record: ShareRecord) -> str:
    """Return the state on one line; delays are those of the last interval."""
    messages = document["messages"]
    parts = [f"heard {messages['heard']}, sent {messages['sent']}"]
    parts += [
        f"{name} {messages['outcomes'][name]}"
        for name in ("dropped", "refused", "unconfirmed")
        if messages["outcomes"].get(name)
    ]
    for side in SIDES:
        sums = [class_sums.sides[side] for class_sums in record.by_class.values()]
        p50, p99 = (ms_text(recent(record, side, part)) for part in (0.5, 0.99))
        missing = sum(each.missing.total() for each in sums)
        doubled = sum(each.doubled for each in sums)
        parts.append(f"{side}: p50 {p50} p99 {p99} missing {missing} doubled {doubled}")
    readers = document["readers"]
    if readers["wanted"] is not None:
        parts.append(f"readers {readers['readers']} of {readers['wanted']}")
    parts += [f"{name}: {text}" for name, text in document["troubles"].items()]
    return " | ".join(parts)


def rows(document: Mapping[str, Any]) -> Iterable[tuple[str, ...]]:
    """Yield the table's rows: both sides of each class that had messages."""
    for name in CLASSES:
        found = document["classes"][name]
        if not found["shared"]:
            continue
        for side in SIDES:
            one = found[side]
            counts = (one["watched"], one["delivered"], one["missing"], one["doubled"])
            delays = (ms_text(one["delay_p50_ms"]), ms_text(one["delay_p99_ms"]))
            yield (name, side, *map(str, counts), *delays)


def closing_lines(document: Mapping[str, Any]) -> Iterable[str]:
    """Yield the lines below the table."""
    messages, readers = document["messages"], document["readers"]
    yield (
        f"{messages['heard']} messages heard in {document['seconds']:.0f} s, "
        f"{messages['shared']} in the share of {document['share']:g}"
    )
    if messages["outcomes"]:
        yield "of these: " + _counts(messages["outcomes"])
    if messages["last_refusal"]:
        yield f"the last that wasn't taken: {messages['last_refusal']}"
    if messages["left_out"]:
        yield "left out: " + _counts(messages["left_out"])
    if messages["unheard"]:
        yield f"{messages['unheard']} messages passed while the mirror was cut off or too slow"
    for side in SIDES:
        observer = document["observers"][side]
        if observer["cut_off"]:
            yield f"the observer {side} was cut off {observer['cut_off']} times"
    if readers["wanted"] is not None:
        yield (
            f"readers there: {readers['opened']} came, {readers['failed']} couldn't, "
            f"{readers['cut_off']} were cut off; they had {readers['messages']} messages; "
            f"connecting p50 {ms_text(readers['connect_p50_ms'])}, "
            f"p99 {ms_text(readers['connect_p99_ms'])}"
        )
    for name, text in document["troubles"].items():
        yield f"{name}: {text}"


def failures(
    document: Mapping[str, Any], *, fail_on_loss: bool, fail_over_delay: float | None
) -> list[str]:
    """Return why the command shall fail; ``fail_over_delay`` is in ms. No comparison is a
    failure."""
    if not fail_on_loss and fail_over_delay is None:
        return []
    classes = document["classes"]
    found = []
    if not any(classes[name]["there"]["watched"] for name in CLASSES):
        found.append("nothing was compared: no message was watched in the other fabric")
    for name in CLASSES:
        there = classes[name]["there"]
        if fail_on_loss and there["missing"]:
            why = _counts(there["missing_by_outcome"])
            found.append(f"{name}: {there['missing']} messages missing there ({why})")
        p99 = there["delay_p99_ms"]
        if fail_over_delay is not None and there["watched"] and p99 is None:
            found.append(f"{name}: none of {there['watched']} messages was delivered there")
        if fail_over_delay is not None and p99 is not None and p99 > fail_over_delay:
            found.append(f"{name}: delay p99 there {ms_text(p99)}, over {fail_over_delay:g} ms")
    return found


def plain(text: str) -> str:
    """Return ``text`` of somebody else as one line of at most 200 characters, all printable."""
    return "".join(c if c.isprintable() else " " for c in text[:_SHOWN])


def ms_text(ms: float | None) -> str:
    """Return a delay as text for a person."""
    return "-" if ms is None else f"{ms:.1f} ms"


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counts.items())
