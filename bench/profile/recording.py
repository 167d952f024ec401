"""Profilers of running processes, and their results: a flame graph and costs.

perf profiles programs in Rust, py-spy those in Python; inferno folds the recording of perf, and
draws both. A profiler that is missing or forbidden is named, with a remedy, and the other goes on.
perf follows frame pointers: with DWARF it would copy 8 KB of stack for each sample.
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import json
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from bench.meter import processor_seconds
from bench.profile.costs import Costs, costs_of, without_waits
from bench.programs import ROOT
from bench.rows import NotMeasured
from newsfabric.errors import SetupError

TOOLS: Final = ROOT / ".tools" / "profile" / "bin"
# Samples a second. No round numbers: work that is done a hundred times a second would always or
# never be sampled. To see C frames too, py-spy stops the process for more than a millisecond.
_PERF_RATE: Final = "499"
_PY_SPY_RATE: Final = "99"
_PATIENCE: Final = 60.0


@dataclasses.dataclass(frozen=True, slots=True)
class Profile:
    """The profile of one process: processor seconds per second, its costs, and its flame graph."""

    cores: float
    costs: Costs
    graph: Path
    #: A remark for a person who reads the profile.
    note: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return everything, for a file."""
        return dataclasses.asdict(self) | {"graph": self.graph.name}


def as_json(found: Mapping[str, Profile | NotMeasured]) -> dict[str, Any]:
    """Return all profiles, or the reasons why there are none, by name."""
    return {
        name: {"not_measured": one.why} if isinstance(one, NotMeasured) else one.as_json()
        for name, one in found.items()
    }


def require_tools() -> None:
    """Raise SetupError if the tools of ``scripts/setup profile`` are missing."""
    for name in ("py-spy", "inferno-collapse-perf", "inferno-flamegraph"):
        if not (TOOLS / name).exists():
            raise SetupError(f"{name} is missing: `scripts/setup profile` installs it")


class Profiler(abc.ABC):
    """A profiler that is attached to one process; its files are called by ``name``."""

    tool: str
    #: The palette of its flame graph.
    colors: str
    #: The remedy if profiling is forbidden.
    hint: str

    def __init__(self, name: str, pid: int) -> None:
        self.name = name
        self.pid = pid
        self.cores = 0.0
        self._process: subprocess.Popen[bytes] | None = None
        self._trouble = "wasn't started"
        self._began = 0.0, 0.0
        self._data, self._output = Path(), Path()

    @abc.abstractmethod
    def command(self, data: Path) -> list[str]:
        """Return the command; it samples the process until interrupted, then writes ``data``."""

    @abc.abstractmethod
    def has_begun(self, data: Path, output: str) -> bool:
        """Return whether sampling has begun; ``output`` is the profiler's whole output."""

    @abc.abstractmethod
    def fold(self, data: Path) -> str:
        """Return the folded stacks in ``data``."""

    def note(self, _costs: Costs) -> str:
        """Return a remark for a person who reads the costs."""
        return ""

    def start(self, folder: Path) -> None:
        """Return when sampling has begun. If it can't begin, :meth:`folded` will say why."""
        self._data, self._output = (folder / f"{self.name}.{end}" for end in ("data", "output"))
        command = self.command(self._data)
        if shutil.which(command[0]) is None:
            self._trouble = f"isn't on the PATH; {self.hint}"
        else:
            with self._output.open("wb") as output:
                # A session of its own: Ctrl-C is for this process, which then signals the profiler.
                self._process = subprocess.Popen(
                    command, stdout=output, stderr=output, start_new_session=True
                )
            deadline = time.monotonic() + _PATIENCE
            while not self.has_begun(self._data, self._text()) and time.monotonic() < deadline:
                if self._process.poll() is not None:
                    break
                time.sleep(0.02)
        self._began = time.monotonic(), processor_seconds(self.pid)

    def stop(self) -> None:
        """Make the profiler write its samples."""
        if self._process is None:
            return
        # If Ctrl-C has ended the profiled process, its processor time can't be read.
        with contextlib.suppress(OSError):
            spent = processor_seconds(self.pid) - self._began[1]
            self.cores = spent / (time.monotonic() - self._began[0])
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def folded(self) -> str:
        """Return the folded stacks of all samples; SetupError with a remedy if there are none."""
        if self._process is None:
            raise SetupError(f"{self.tool} {self._trouble}")
        if not self._data.exists() or not self._data.stat().st_size:
            raise SetupError(f"{self.tool} failed ({why(self._text())}); {self.hint}")
        return self.fold(self._data)

    def _text(self) -> str:
        return self._output.read_text("utf-8", "replace")


class PySpy(Profiler):
    """Profiles a program in Python, with the C functions that it calls."""

    tool = "py-spy"
    colors = "python"
    hint = "it may look as root, or after `sysctl kernel.yama.ptrace_scope=0`"

    def command(self, data: Path) -> list[str]:
        """See :meth:`Profiler.command`."""
        to = ("--pid", str(self.pid), "--output", str(data), "--rate", _PY_SPY_RATE)
        how = ("--format", "raw", "--nolineno", "--native")
        return [str(TOOLS / "py-spy"), "record", *to, *how]

    def has_begun(self, data: Path, output: str) -> bool:
        """See :meth:`Profiler.has_begun`: py-spy prints a line."""
        return "Sampling process" in output

    def fold(self, data: Path) -> str:
        """See :meth:`Profiler.fold`; stacks that only wait are left out."""
        return without_waits(data.read_text("utf-8", "replace"))


class Perf(Profiler):
    """Profiles a program that has frame pointers, with the kernel's work for it."""

    tool = "perf"
    colors = "rust"
    hint = (
        "Debian's package is linux-perf; it may look as root, or after "
        "`sysctl kernel.perf_event_paranoid=1`"
    )

    def command(self, data: Path) -> list[str]:
        """See :meth:`Profiler.command`."""
        to = ("--pid", str(self.pid), "--output", str(data))
        return ["perf", "record", *to, "--freq", _PERF_RATE, "--call-graph", "fp"]

    def has_begun(self, data: Path, output: str) -> bool:
        """See :meth:`Profiler.has_begun`: the data file exists."""
        return data.exists()

    def fold(self, data: Path) -> str:
        """See :meth:`Profiler.fold`; the folded stacks stay in a file beside ``data``."""
        stacks = data.with_suffix(".stacks")
        # Each sample counts once, not for the nanoseconds that it stands for.
        _run(["perf", "script", "--input", str(data), "--fields", "-period"], stacks)
        folded = data.with_suffix(".folded")
        _run([str(TOOLS / "inferno-collapse-perf"), "--kernel", str(stacks)], folded)
        return folded.read_text("utf-8", "replace")

    def note(self, costs: Costs) -> str:
        """See :meth:`Profiler.note`: a warning if the kernel is missing, with the remedy."""
        return "" if costs.kernel_seen else f"without the kernel's part; {self.hint}"


class Recorder:
    """Runs profilers, and keeps their results; ``folder`` is for flame graphs and figures."""

    def __init__(self, folder: Path) -> None:
        self.found: dict[str, Profile | NotMeasured] = {}
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    @contextlib.contextmanager
    def recording(self, *profilers: Profiler) -> Iterator[None]:
        """Run the profilers while the block runs, however it ends."""
        with tempfile.TemporaryDirectory(prefix="newsfabric-profile-") as folder:
            try:
                for profiler in profilers:
                    profiler.start(Path(folder))
                yield
            finally:
                for profiler in profilers:
                    profiler.stop()
                for profiler in profilers:
                    self.found[profiler.name] = self._profile(profiler)
                self._write()

    def _profile(self, profiler: Profiler) -> Profile | NotMeasured:
        graph = self._folder / f"{profiler.name}.svg"
        try:
            folded = profiler.folded()
            graph.with_suffix(".folded").write_text(folded, encoding="utf-8")
            costs = costs_of(folded)
            if not costs.samples:
                return NotMeasured("it did nothing that was seen")
            title = ("--title", profiler.name, "--colors", profiler.colors)
            _run([str(TOOLS / "inferno-flamegraph"), *title], graph, text=folded)
        except SetupError as exc:
            return NotMeasured(str(exc))
        return Profile(profiler.cores, costs, graph, profiler.note(costs))

    def _write(self) -> None:
        text = json.dumps(as_json(self.found), indent=2, ensure_ascii=False)
        (self._folder / "costs.json").write_text(text + "\n", encoding="utf-8")


def why(output: str) -> str:
    """Return the reason in the output of a program that failed, in one line."""
    lines = [
        line.strip() for line in output.partition("Error:")[2].splitlines() or output.splitlines()
    ]
    return next((line for line in lines if line), "it says nothing")


def _run(command: Sequence[str], output: Path, *, text: str = "") -> None:
    """Run a command with its output in a file. SetupError if it fails."""
    with output.open("wb") as file:
        done = subprocess.run(
            command, input=text.encode(), stdout=file, stderr=subprocess.PIPE, check=False
        )
    if done.returncode:
        error = done.stderr.decode("utf-8", "replace")
        raise SetupError(f"{Path(command[0]).name} failed ({why(error)})")
