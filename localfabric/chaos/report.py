"""The report of a chaos run: ``report.json``, ``report.md`` and ``plot.svg`` in one folder."""

from __future__ import annotations

import dataclasses
import datetime
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from localfabric.chaos.delivery_record import (
    DeliveryAccount,
    DeliveryDelays,
    RecordedMessage,
    ReportedGap,
    Wrong,
)
from localfabric.chaos.message_traces import SHOWN_TRACES
from localfabric.chaos.run import ChaosOutcome, InjectedFault
from localfabric.plot import Band, Panel, PlotLine, draw

_AROUND: Final = 15.0
# The number of gaps that are listed one by one.
_GAPS: Final = 40


def write_report(outcome: ChaosOutcome, folder: Path) -> DeliveryAccount:
    """Write all three files; return the account."""
    account = outcome.record.account()
    rows = [_fault_row(outcome, n) for n in range(len(outcome.faults))]
    wrongs = [_wrong(outcome, wrong) for wrong in account.wrong]
    document = {
        "run": outcome.run,
        "started_at": _date(outcome.started_at),
        "options": dataclasses.asdict(outcome.options),
        "kept": account.kept,
        "settled_after": outcome.settled_after,
        "account": dataclasses.asdict(account) | {"wrong": wrongs},
        "gaps": [{"reader": gap.reader} | _gap(gap) for gap in outcome.record.reported_gaps],
        "faults": rows,
        "errors": list(outcome.faulty),
    }
    (folder / "report.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    markdown = "\n".join(_markdown(outcome, account, rows, wrongs)) + "\n"
    (folder / "report.md").write_text(markdown, encoding="utf-8")
    (folder / "plot.svg").write_text(_plot(outcome, account), encoding="utf-8")
    return account


def verdict(account: DeliveryAccount) -> str:
    """Return the results in one line."""
    return (
        f"{account.published} published, {account.receipted} receipted, "
        f"{account.paid} of {account.owed} deliveries to {account.readers} readers, "
        f"{account.count('lost')} lost, {account.count('doubled')} doubled, "
        f"{account.count('told wrongly')} told wrongly"
    )


def broken(outcome: ChaosOutcome, account: DeliveryAccount) -> Iterator[str]:
    """Yield the first :data:`SHOWN_TRACES` broken promises, each with its message's trace."""
    for wrong in account.wrong[:SHOWN_TRACES]:
        found = _wrong(outcome, wrong)
        yield "\n    ".join((_wrong_text(found), *found["trace"]))
    if len(account.wrong) > SHOWN_TRACES:
        yield f"… and {len(account.wrong) - SHOWN_TRACES} more in report.json"


def _fault_row(outcome: ChaosOutcome, n: int) -> dict[str, Any]:
    done = outcome.faults[n]
    later = outcome.faults[n + 1 :]
    until = later[0].began if later else outcome.seconds
    delays = DeliveryDelays.of(outcome.record.delays(since=done.began, until=until))
    gold = DeliveryDelays.of(outcome.record.delays(since=done.began, until=until, klass="gold"))
    return {
        "at": round(done.began, 1),
        "lasted": None if done.healed is None else round(done.healed - done.began, 1),
        "what": f"{done.fault.verb} {done.fault.name}",
        "kind": done.fault.kind,
        "delays": None if delays is None else dataclasses.asdict(delays),
        "gold": None if gold is None else dataclasses.asdict(gold),
        "error": done.error,
    }


def _wrong(outcome: ChaosOutcome, wrong: Wrong) -> dict[str, Any]:
    record = outcome.record
    message = record.messages[wrong.n]
    had = record.first.get(wrong.n, {})
    return {
        "what": wrong.what,
        "n": wrong.n,
        "message_id": f"{outcome.run}-{wrong.n}",
        "id": message.id,
        "topic": message.topic,
        "class": message.klass,
        "published_in": message.region,
        "sent": round(message.sent, 3),
        "receipted": None if message.receipted is None else round(message.receipted, 3),
        "router": message.router,
        "during": _during(outcome.faults, message),
        "trace": outcome.traces.get(wrong.n, "").splitlines(),
        "readers_who_had_it": len(had),
        "readers": [
            {
                "name": name,
                "connections": [
                    {"at": round(c.at, 2), "url": c.url}
                    for c in record.connections(
                        name, since=message.sent - 1.0, until=message.sent + _AROUND
                    )
                ],
                "told_of_gaps": [_gap(gap) for gap in record.gaps(name)],
                "deliveries": [
                    {"at": round(a.at, 3), "connection": a.connection, "sort": a.sort}
                    for a in record.doubles
                    if a.n == wrong.n and a.reader == name
                ],
            }
            for name in wrong.readers
        ],
    }


def _gap(gap: ReportedGap) -> dict[str, Any]:
    return {"at": round(gap.at, 2), "topic": gap.topic, "reason": gap.reason}


def _during(faults: tuple[InjectedFault, ...], message: RecordedMessage) -> str | None:
    """Return the last fault that began before the message's receipt, or soon after."""
    end = (message.receipted or message.sent) + _AROUND
    near = [done for done in faults if done.began <= end]
    if not near:
        return None
    done = near[-1]
    return f"{done.fault.verb} {done.fault.name} at {done.began:.1f} s"


def _wrong_text(found: dict[str, Any]) -> str:
    readers = found["readers"]
    names = ", ".join(reader["name"] for reader in readers[:5])
    more = f" and {len(readers) - 5} more" if len(readers) > 5 else ""
    receipt = "none" if found["receipted"] is None else f"{found['receipted']:.3f} s"
    return (
        f"{found['what']}: {found['class']} message {found['message_id']} on {found['topic']}, "
        f"sent to {found['published_in']} at {found['sent']:.3f} s, receipt {receipt} "
        f"from {found['router']}, id {found['id']}; for {len(readers)} readers ({names}{more}), "
        f"while {found['readers_who_had_it']} had it; nearest fault: {found['during']}"
    )


def _markdown(
    outcome: ChaosOutcome,
    account: DeliveryAccount,
    rows: list[dict[str, Any]],
    wrongs: list[dict[str, Any]],
) -> Iterator[str]:
    options = outcome.options
    yield f"# Chaos run of {_date(outcome.started_at)}"
    yield ""
    kept = "**Every promise was kept.**" if account.kept else "**Promises were broken.**"
    yield f"{kept} {verdict(account)}."
    yield ""
    yield (
        f"`newsfabric chaos run --minutes {options.minutes:g} --seed {options.seed} "
        f"--rate {options.rate:g} --readers {options.readers}{' --outages' * options.outages}`"
    )
    yield ""
    yield "![Deliveries and delay against the faults](plot.svg)"
    yield ""
    yield "## Account"
    yield ""
    yield "| | |"
    yield "| --- | ---: |"
    yield from (f"| {name} | {value} |" for name, value in _account_rows(outcome, account))
    yield ""
    yield "## Delay, from the publisher's first try to the reader"
    yield ""
    yield "| class | deliveries | median | 99 % | worst |"
    yield "| --- | ---: | ---: | ---: | ---: |"
    for name, delays in account.delays.items():
        yield f"| {name} | {delays.count} | {_cells(dataclasses.asdict(delays))} |"
    yield ""
    yield "## Faults"
    yield ""
    yield "Delays are those of messages sent between this fault and the next."
    yield ""
    yield "| at | what | lasted | median | 99 % | worst | worst gold |"
    yield "| ---: | --- | ---: | ---: | ---: | ---: | ---: |"
    for row in rows:
        lasted = "" if row["lasted"] is None else f"{row['lasted']:.1f} s"
        gold = "" if row["gold"] is None else _time(row["gold"]["worst"])
        what = row["what"] + (f" ({row['error']})" if row["error"] else "")
        yield f"| {row['at']:.0f} s | {what} | {lasted} | {_cells(row['delays'])} | {gold} |"
    if gaps := outcome.record.reported_gaps:
        yield ""
        yield "## Who was told that something may be missing"
        yield ""
        yield "| at | reader | topic | connected to | why |"
        yield "| ---: | --- | --- | --- | --- |"
        yield from (_gap_row(outcome, gap) for gap in gaps[:_GAPS])
        if len(gaps) > _GAPS:
            yield f"| … | {len(gaps) - _GAPS} more in report.json | | | |"
    if wrongs:
        yield ""
        yield "## Broken promises"
        for found in wrongs[:SHOWN_TRACES]:
            yield from ("", _wrong_text(found), "", "```", *found["trace"], "```")
        if len(wrongs) > SHOWN_TRACES:
            yield ""
            yield f"… and {len(wrongs) - SHOWN_TRACES} more in report.json"


def _gap_row(outcome: ChaosOutcome, gap: ReportedGap) -> str:
    before = outcome.record.connections(gap.reader, since=gap.at, until=gap.at)
    url = before[-1].url if before else ""
    return f"| {gap.at:.1f} s | {gap.reader} | {gap.topic} | {url} | {gap.reason} |"


def _account_rows(outcome: ChaosOutcome, account: DeliveryAccount) -> Iterator[tuple[str, str]]:
    yield "messages published", str(account.published)
    yield "with a receipt", str(account.receipted)
    yield "rejected", str(account.rejected)
    yield "without a receipt to the end", str(account.unreceipted)
    yield "readers, and their connections", f"{account.readers}, {account.connections}"
    yield "deliveries owed (receipted messages x their readers)", str(account.owed)
    yield "deliveries made", str(account.paid)
    yield "messages lost to at least one reader", str(account.count("lost"))
    yield "messages doubled for at least one reader", str(account.count("doubled"))
    yield "messages missing after `recovered: true`", str(account.count("told wrongly"))
    yield "bronze dropped under load, sent again", str(account.shed)
    yield "bronze deliveries missing (allowed)", str(account.missing_bronze)
    yield "individual messages dismissed by their users", str(account.dismissed)
    yield "… of which no device was told", str(account.unheard)
    yield "repeats after a reconnect, dropped by identity", str(account.repeats)
    yield "resumes told that nothing is missing, each checked", str(account.recovered)
    yield "resumes told that something may be missing", str(account.gaps)
    yield "… deliveries that came from the history, read for that", str(account.reread)
    settled = outcome.settled_after
    yield "everything had arrived", "never" if settled is None else f"{settled:.1f} s after the end"


def _cells(delays: dict[str, Any] | None) -> str:
    if delays is None:
        return " | | "
    return " | ".join(_time(delays[name]) for name in ("p50", "p99", "worst"))


def _time(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def _plot(outcome: ChaosOutcome, account: DeliveryAccount) -> str:
    record = outcome.record
    last = max((at for had in record.first.values() for at in had.values()), default=0.0)
    seconds = int(max(outcome.seconds, last)) + 1
    owed = [0.0] * seconds
    delivered = [0.0] * seconds
    delays: list[list[float]] = [[] for _ in range(seconds)]
    for message in record.messages.values():
        owed[_second(message.sent, seconds)] += len(record.readers_of(message.topic))
        for at in record.first.get(message.n, {}).values():
            delivered[_second(at, seconds)] += 1
        delays[_second(message.sent, seconds)] += [
            at - message.sent for at in record.prompt(message.n)
        ]
    of = [DeliveryDelays.of(samples) for samples in delays]
    rates = [PlotLine("deliveries/s", delivered), PlotLine("sent to readers/s", owed)]
    waits = [
        PlotLine("worst", [None if d is None else d.worst for d in of]),
        PlotLine("99 %", [None if d is None else d.p99 for d in of]),
        PlotLine("median", [None if d is None else d.p50 for d in of]),
    ]
    panels = [
        Panel("a second", rates),
        Panel("delay, by when it was sent", waits, durations=True),
    ]
    bands = [
        Band(d.began, d.healed or outcome.seconds, d.fault.kind, f"{d.fault.verb} {d.fault.name}")
        for d in outcome.faults
    ]
    return draw(verdict(account), range(seconds), panels, bands=bands)


def _second(at: float, seconds: int) -> int:
    return min(seconds - 1, max(0, int(at)))


def _date(at: float) -> str:
    return datetime.datetime.fromtimestamp(at, datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
