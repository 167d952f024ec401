"""The results of a surge, from one sample a second. Pure: no clock, no I/O.

Times are seconds since the run began. Connect times are of readers who connect for the first time,
from the request to the frontdesk to the gateway's ``subscribed``: all that a person waits for.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from loadtest.times import Times, added, share_of

#: Most times that a connect may take longer under the greatest load than under the smallest.
FLAT: Final = 1.5
#: The number of bands of equal width into which the load is divided.
BANDS: Final = 10
# A band with fewer connects has no meaningful median.
_LEAST_IN_A_BAND: Final = 50


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SurgeSample:
    """A second. ``started`` boxes have a process, ``standing`` boxes are offered to readers.

    Counts of events and ``messages`` are since the sample before; so are times, in ms: ``arrivals``
    of readers who are new, with all tries; ``connects`` of all, the last try alone. ``failed``:
    connections without a reply, ``broken``: those that ended without a close, ``moved``: those that
    a draining box sent away, ``gaps``: resumes that may have missed something. ``machine_load`` is
    the load average of the last minute, with all other programs on the machine.
    """

    at: float
    phase: str
    present: int
    arrived: int
    left: int
    started: tuple[str, ...]
    standing: int
    wanted: int | None
    refused: int
    failed: int
    broken: int
    moved: int
    returned: int
    gaps: int
    messages: int
    doubled: int
    repeats: int
    machine_load: float = 0.0
    arrivals: Times = dataclasses.field(default_factory=dict)
    connects: Times = dataclasses.field(default_factory=dict)
    delays: Times = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """Connects while between ``least`` and ``most`` readers were there; ms."""

    least: int
    most: int
    connects: int
    p50: float
    p99: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The run in numbers. ``refused_after`` counts from the time when the first new box was ready.

    ``late``: deliveries that readers who left hadn't received ten seconds after sending. ``flat``
    is the longest p50 of a band divided by that of the first band; None without two bands.
    """

    readers: int
    most_present: int
    messages: int
    owed: int
    lost: int
    late: int
    doubled: int
    never_in: int
    refused: int
    refused_after: int
    failed: int
    broken: int
    moved: int
    gaps: int
    repeats: int
    boxes_at_first: int
    boxes_at_most: int
    boxes_at_last: int
    first_new_box_at: float | None
    grown: float
    bands: tuple[Band, ...]
    flat: float | None
    connect_p50: float | None
    connect_p99: float | None
    delay_p50: float | None
    delay_p99: float | None
    machine_load: tuple[float, float]

    def broken_promises(self) -> Iterator[str]:
        """Yield each promise that wasn't kept, in words; a run should yield none."""
        if self.lost:
            yield f"{self.lost} deliveries were lost"
        if self.doubled:
            yield f"{self.doubled} deliveries were doubled"
        if self.refused_after:
            yield f"{self.refused_after} readers were refused after the first new box stood"
        if self.never_in:
            yield f"{self.never_in} readers never got in"
        if not self.owed:
            yield "no delivery was owed to anybody, so no promise can be shown to be kept"
        if self.first_new_box_at is None:
            yield "no box was started"
        if self.boxes_at_last >= self.boxes_at_most:
            yield f"{self.boxes_at_last} boxes are left of {self.boxes_at_most}"
        if self.flat is None:
            yield "too few connects to say whether their time is flat"
        elif self.flat > FLAT:
            yield f"connects take up to {self.flat:.2f} times as long (p50) as at first"


def figures(samples: Sequence[SurgeSample], census: Mapping[str, int]) -> Figures:
    """Return all figures. ``census`` is the sum of the crowds' results at the end."""
    first = len(samples[0].started)
    new_at = next((s.at for s in samples if s.standing > first), None)
    bands = tuple(_bands(samples))
    arrivals = added(s.arrivals for s in samples)
    delays = added(s.delays for s in samples)
    most = max(s.present for s in samples)
    loads = [s.machine_load for s in samples]
    return Figures(
        readers=census["readers"],
        most_present=most,
        messages=census["messages"],
        owed=census["owed"],
        lost=census["lost"],
        late=census["late"],
        doubled=census["doubled"],
        never_in=census["never_in"],
        refused=sum(s.refused for s in samples),
        refused_after=sum(s.refused for s in samples if new_at is not None and s.at > new_at),
        failed=sum(s.failed for s in samples),
        broken=sum(s.broken for s in samples),
        moved=sum(s.moved for s in samples),
        gaps=sum(s.gaps for s in samples),
        repeats=sum(s.repeats for s in samples),
        boxes_at_first=first,
        boxes_at_most=max(len(s.started) for s in samples),
        boxes_at_last=len(samples[-1].started),
        first_new_box_at=new_at,
        grown=most / bands[0].most if bands else 0.0,
        bands=bands,
        flat=max(band.p50 for band in bands) / bands[0].p50 if len(bands) > 1 else None,
        connect_p50=share_of(arrivals, 0.5),
        connect_p99=share_of(arrivals, 0.99),
        delay_p50=share_of(delays, 0.5),
        delay_p99=share_of(delays, 0.99),
        machine_load=(min(loads), max(loads)),
    )


def _bands(samples: Sequence[SurgeSample]) -> Iterator[Band]:
    most = max(s.present for s in samples)
    width = max(1, -(-most // BANDS))
    found: dict[int, list[Times]] = {}
    for sample in samples:
        if sample.arrivals:
            found.setdefault(max(0, sample.present - 1) // width, []).append(sample.arrivals)
    for band in sorted(found):
        times = added(found[band])
        connects = sum(times.values())
        if connects >= _LEAST_IN_A_BAND:
            yield Band(
                least=band * width,
                most=(band + 1) * width,
                connects=connects,
                p50=share_of(times, 0.5) or 0.0,
                p99=share_of(times, 0.99) or 0.0,
            )


def figures_document(found: Figures) -> dict[str, Any]:
    """Return ``found`` as JSON, with the broken promises."""
    broken = list(found.broken_promises())
    return {**dataclasses.asdict(found), "kept": not broken, "broken_promises": broken}
