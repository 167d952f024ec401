"""The faults that can be put in, by name.

A model without a counterexample proves something only if it finds faults. Each of these breaks one
sentence of the design. "As written" marks faults of the design's first text, for which this model's
forerunner found counterexamples. A fault that isn't found limits the trust in the model; its rule
is still needed, and a test of the part itself holds it (test_logs, test_log_times, test_late and
test_log_clock of their packages).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from logmodel import faults_of_gateways as gateways
from logmodel import faults_of_routers as routers
from logmodel.parts import ModelParts, parts_with


@dataclasses.dataclass(frozen=True, slots=True)
class Mutation:
    """A fault: its effect in words, and the parts that have it."""

    description: str
    faults: tuple[type, ...]
    #: True if the design's first text had this fault.
    as_written: bool = False
    #: True if a history of this model found it.
    is_found: bool = True


def _first(description: str, *faults: type, is_found: bool = True) -> Mutation:
    return Mutation(description, faults, as_written=True, is_found=is_found)


MUTATIONS: dict[str, Mutation] = {
    "low_at_store": _first("low counts what is stored, published or not", routers.LowAtStore),
    "no_lease": _first("routers go on without a directory write", routers.NoLease),
    "successor_closes": _first(
        "who starts under the same name closes at once", routers.SuccessorCloses
    ),
    "blind_directory": _first(
        "directory rows are overwritten, not compared and set", routers.BlindDirectory
    ),
    "void_after_write": _first(
        "a number whose write was tried may become void",
        routers.VoidAfterWrite,
        routers.VoidsWhatTimedOut,
    ),
    "covered_void": _first(
        "a covered copy counts as had, void or not", gateways.CoveredVoid, is_found=False
    ),
    "covered_unsettled": _first(
        "what was given here and may end void isn't given to who joins with a position beyond it",
        gateways.CoveredUnsettled,
    ),
    "rule5_window": _first(
        "only what is older than the identity window is looked up", gateways.RuleFiveWindow
    ),
    "rule5_local": _first(
        "copies are looked up in the own region's store alone", gateways.LooksUpHere
    ),
    "marks_only": _first(
        "a control plane leaves marks alone",
        gateways.MarksOnly,
        gateways.ForgetsReports,
    ),
    "blob_only": _first(
        "what was given after a control plane left its state is forgotten",
        gateways.ForgetsReports,
    ),
    "since_time": _first("stores are read since the position's time", gateways.SinceTime),
    "silent_from_top": _first(
        "of a silent log only numbers beyond the highest seen are read", gateways.SilentFromTop
    ),
    "tail_here": _first(
        "beyond low, rows that lie in another region than their own count too",
        gateways.TailAnywhere,
    ),
    "unseen_given": Mutation(
        "a resume gives what a read of the topic found, though it wasn't seen here",
        (gateways.CountsAnywhere, gateways.GivesUnseen),
    ),
    "half_found": Mutation(
        "who closes counts an index row without its message as found", (routers.HalfFound,)
    ),
    "void_is_gap": Mutation(
        "who closes counts void rows as numbers without a row", (routers.VoidIsGap,)
    ),
    "passed_lost": Mutation(
        "a control plane leaves voids, but not which of them it passed over",
        (gateways.PassedLost,),
        is_found=False,
    ),
    "dropped_unnoted": Mutation(
        "a dropped copy that memory doesn't hold isn't noted as forgotten",
        (gateways.DroppedUnnoted,),
        is_found=False,
    ),
    "no_proof": Mutation("recovered: true after a read of the own region", (gateways.NoProof,)),
    "void_wrong": Mutation("what isn't found four times counts as void", (gateways.VoidWrong,)),
    "start_beyond": Mutation("a gateway starts a few numbers beyond low", (gateways.StartBeyond,)),
    "close_early": Mutation("a log is closed after 10 s", (routers.CloseEarly,)),
    "close_short": Mutation(
        "who closes stops at the first number without a row", (routers.CloseShort,)
    ),
    "dir_late": Mutation(
        "the directory row is written after the first messages", (routers.DirectoryLate,)
    ),
    "epoch_taken": Mutation(
        "a router begins its log though another of its name has one of that epoch",
        (routers.CoarseEpochs, routers.EpochTaken),
    ),
    "rule5_off": Mutation(
        "old messages are offered without a search for copies", (gateways.RuleFiveOff,)
    ),
    "no_gave": Mutation("what a resume hands out isn't noted as given", (gateways.ReplayUnnoted,)),
    "seen_early": Mutation(
        "logs that a position doesn't list count as seen when a minute older than it",
        (gateways.SeenEarly,),
    ),
    "heard_later_from_low": Mutation(
        "a log that is heard of later is expected from its low", (gateways.HeardLaterFromLow,)
    ),
    "mark_skips": Mutation("the mark follows low", (gateways.MarkSkips,)),
    "no_silent": Mutation(
        "silent logs are not read, and nobody closes any",
        (gateways.NeverSilent, routers.NobodyCloses),
    ),
    "other_closes": Mutation("other regions close logs, too", (routers.OtherCloses,)),
    "trim_wrong": Mutation("a memory doesn't note what it forgets", (gateways.TrimUnnoted,)),
    "clock_back": Mutation("a router's times follow its wall clock back", (routers.GoesBack,)),
    "clock_stands": Mutation(
        "a router's time stands still until its wall clock is there",
        (routers.StandsStill,),
        is_found=False,
    ),
    "clock_alone": Mutation(
        "a router's first time is its wall clock's, whatever rows tell", (routers.ForgetsRows,)
    ),
    "clock_believed": Mutation(
        "a router's clock isn't compared with the store's", (routers.NotCompared,)
    ),
    "rows_timeless": Mutation("rows tell when a log began alone", (routers.RowsTellNoTime,)),
    "directory_by_wall": Mutation(
        "a gateway's own clock says when it read the directory", (gateways.DirectoryByWall,)
    ),
    "directory_by_latest": Mutation(
        "a gateway goes by the clocks of the region that is furthest ahead",
        (gateways.DirectoryByLatest,),
    ),
    "certain_runs_on": Mutation(
        "what is certain goes on while no router tells anything", (gateways.CertainRunsOn,)
    ),
    "passed_alike": Mutation(
        "what of a region is past goes by the clocks of all regions",
        (gateways.PassedAlike,),
        is_found=False,
    ),
    "age_by_wall": Mutation(
        "a gateway's own clock says how old a message is",
        (gateways.AgeByWall,),
        is_found=False,
    ),
    "span_alike": Mutation(
        "copies are looked up by their times as if clocks had never been wrong",
        (gateways.SpanWithoutSpread,),
    ),
    "ahead_is_young": Mutation(
        "what is ahead of all that its region reported is young",
        (gateways.AheadIsYoung,),
        is_found=False,
    ),
    "read_looks_young": Mutation(
        "what was read by its number is as old as it looks", (gateways.ReadLooksYoung,)
    ),
    "hours_disbelieved": Mutation(
        "a clock that is hours from a gateway's own isn't believed", (gateways.HoursDisbelieved,)
    ),
    "hold_off": Mutation("memory is trimmed while a store is read", (gateways.TrimsDuringReads,)),
}

#: The name for all faults of the first text together.
AS_WRITTEN = "as_written"


def parts_of(names: Iterable[str]) -> ModelParts:
    """Return the design with these faults; KeyError for an unknown name."""
    chosen: dict[str, Mutation] = {}
    for name in names:
        if name == AS_WRITTEN:
            chosen.update({n: m for n, m in MUTATIONS.items() if m.as_written})
        else:
            chosen[name] = MUTATIONS[name]
    faults = dict.fromkeys(fault for mutation in chosen.values() for fault in mutation.faults)
    return parts_with(faults)
