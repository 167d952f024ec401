"""The state folder of a world, with notes of its processes, written before and after their start.

``world.json`` holds the options (from which everything else follows), the processes, and the
keeper: the ``up`` that starts the world or stays in the foreground. Notes are replaced atomically
(written aside, then renamed). They make ``status`` quick and ``down`` orderly, but processes are
found without them: see :mod:`localfabric.world.processes`.
"""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from localfabric.world.layout import WorldLayout, lay_out
from localfabric.world.options import WorldOptions
from localfabric.world.processes import ProcessId, marked
from newsfabric.errors import ConfigError, WorldError

_NOTES: Final = "world.json"
# All files that a world makes in its folder, and so all that are removed from it.
_FILES: Final = (
    _NOTES,
    "fabric.json",
    "links.json",
    "topics.toml",
    "token-key.pem",
    "token-keys.pem",
    "store.sqlite",
    "store.sqlite-wal",
    "store.sqlite-shm",
)
_FOLDERS: Final = (
    "fabric",
    "definitions",
    "publishers",
    "users",
    "brokers",
    "erlang",
    "sockets",
    "logs",
)
#: The variable with the engine of gateways (gateway/__main__.py).
ENGINE: Final = "NEWSFABRIC_GATEWAY_ENGINE"
# Also the place of the native one (gateway/native/program.py).
_ENGINE_VARIABLES: Final = (ENGINE, "NEWSFABRIC_DATAPLANE")
_FOLDERS_WHEN_NEEDED: Final = ("cassandra",)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Notes:
    """The content of ``world.json``. A process that is planned but not started yet has no id.

    ``keeper`` is the ``up`` that is starting the world or stands in the foreground; ``ready``: the
    canaries have arrived. ``newest`` has, for regions that have grown or shrunk, the number of the
    box started last; ``versions`` has the RabbitMQ of each broker that was started. ``engine`` has
    the variables of ``up``'s environment about gateways' engine (:func:`engine_variables`).
    """

    options: WorldOptions
    processes: dict[str, ProcessId | None]
    keeper: ProcessId | None = None
    ready: bool = False
    newest: dict[str, int] = dataclasses.field(default_factory=dict)
    versions: dict[str, str] = dataclasses.field(default_factory=dict)
    engine: dict[str, str] = dataclasses.field(default_factory=dict)

    def running(self) -> dict[str, ProcessId]:
        """Return the processes that are alive, by name."""
        return {name: p for name, p in self.processes.items() if p is not None and p.alive}


def engine_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of ``environ`` that decide a gateway's engine."""
    return {name: str(environ[name]) for name in _ENGINE_VARIABLES if name in environ}


def state_path(path: Path) -> Path:
    """Return ``path`` made absolute, with its links resolved."""
    return path.expanduser().resolve()


def read_notes(state: Path) -> Notes | None:
    """Return the notes in ``state``; None if there are none, WorldError if they can't be read."""
    try:
        text = (state / _NOTES).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise WorldError(f"{state / _NOTES}: {exc.strerror}") from exc
    try:
        return parse_notes(json.loads(text))
    except (ValueError, KeyError, TypeError, AttributeError, ConfigError) as exc:
        raise WorldError(f"{state / _NOTES} isn't what newsfabric wrote: {exc!r}") from exc


def has_notes(state: Path) -> bool:
    """Return whether ``state`` is the folder of a world, alive or dead."""
    return (state / _NOTES).is_file()


def write_notes(state: Path, notes: Notes) -> None:
    """Replace the notes in ``state``, which must exist."""
    write_private(state / _NOTES, json.dumps(dump_notes(notes), indent=2) + "\n")


def dump_notes(notes: Notes) -> dict[str, Any]:
    """Return ``notes`` as JSON values."""
    return dataclasses.asdict(notes)


def parse_notes(document: Any) -> Notes:
    """Reverse :func:`dump_notes`; ValueError, KeyError, TypeError, AttributeError or ConfigError
    for other documents."""
    options = document["options"]
    return Notes(
        options=WorldOptions(**options | _tuples(options)),
        processes={name: _process(entry) for name, entry in document["processes"].items()},
        keeper=_process(document["keeper"]),
        ready=document["ready"] is True,
        newest={name: int(number) for name, number in document.get("newest", {}).items()},
        versions={name: str(version) for name, version in document.get("versions", {}).items()},
        engine=engine_variables(document.get("engine", {})),
    )


def _tuples(options: dict[str, Any]) -> dict[str, Any]:
    """Return the values that are tuples here and lists in JSON."""
    scale = options.get("scale")
    return {
        "regions": tuple(options["regions"]),
        "boxes": tuple(tuple(map(int, numbers)) for numbers in options.get("boxes", ())),
        "scale": None if scale is None else (int(scale[0]), int(scale[1])),
        "rabbitmq_of": tuple((str(p), str(folder)) for p, folder in options.get("rabbitmq_of", ())),
    }


def _process(entry: Any) -> ProcessId | None:
    return None if entry is None else ProcessId(int(entry["pid"]), int(entry["started"]))


def read_running(state: Path) -> tuple[WorldLayout, Notes]:
    """Return the world in ``state``; WorldError (one line) if there is none, or a dead one."""
    notes = read_notes(state)
    if notes is None:
        raise WorldError(f"no world in {shown(state)}: start one with `newsfabric up`")
    if not notes.running() and (notes.keeper is None or not notes.keeper.alive):
        raise WorldError(f"the world in {shown(state)} is dead: `newsfabric down` cleans up")
    return lay_out(notes.options, state), notes


def check_free(state: Path) -> None:
    """WorldError if a world runs in ``state``, or a file lies there that is no world's."""
    if marked(state):
        raise WorldError(
            f"a world is running already in {shown(state)}: `newsfabric down` stops it"
        )
    if not state.is_dir() or has_notes(state) or _only_kept_logs(state):
        return
    if foreign := sorted(entry.name for entry in state.iterdir()):
        raise WorldError(f"{shown(state)} holds {foreign[0]}, which is no world's: choose --state")


def make_folder(state: Path, notes: Notes) -> None:
    """Begin a new world in ``state``, after :func:`check_free`; a dead world's files are removed.

    ``notes`` list the processes to start. They are written first, so that the remains of a crash
    are known as a world's.
    """
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    _empty(state)
    write_notes(state, notes)
    for name in _FOLDERS:
        (state / name).mkdir(mode=0o700)


def _only_kept_logs(state: Path) -> bool:
    logs = state / "logs"
    return list(state.iterdir()) == [logs] and all(log.suffix == ".log" for log in logs.iterdir())


@contextmanager
def locked(state: Path) -> Iterator[None]:
    """Lock the folder while starting: the second of two ``up`` at once gets WorldError."""
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    # The folder itself is the lock: a lock file would have to outlive the folder's removal.
    descriptor = os.open(state, os.O_RDONLY | os.O_DIRECTORY)
    with ExitStack() as stack:
        stack.callback(os.close, descriptor)
        _lock(descriptor, state)
        stack.callback(_remove_if_empty, state)
        yield


@contextmanager
def changing(state: Path) -> Iterator[None]:
    """Lock the notes of a running world to read, change and write them; wait for the lock.

    Another lock than :func:`locked`, which an ``up`` in the foreground holds all the time.
    WorldError without a world.
    """
    try:
        descriptor = os.open(state / "logs", os.O_RDONLY | os.O_DIRECTORY)
    except OSError as exc:
        raise WorldError(f"no world in {shown(state)}: {exc.strerror}") from exc
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _remove_if_empty(state: Path) -> None:
    # Another process may be removing it too: a person's `down` beside the watchdog's.
    with suppress(FileNotFoundError):
        if not any(state.iterdir()):
            state.rmdir()


def _lock(descriptor: int, state: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as exc:
        raise WorldError(
            f"`newsfabric up` is running already in {shown(state)}: `newsfabric down` stops it"
        ) from exc


def remove(state: Path, *, keep_logs: bool = False) -> None:
    """Remove a world's files from ``state``, and ``state`` itself if it is then empty.

    Only for a folder with notes: without them its ``logs`` may be another program's.
    """
    _empty(state, keep_logs=keep_logs)
    _remove_if_empty(state)


def _empty(state: Path, *, keep_logs: bool = False) -> None:
    for name in (*_FOLDERS, *_FOLDERS_WHEN_NEEDED):
        if not (keep_logs and name == "logs"):
            shutil.rmtree(state / name, ignore_errors=True)
    for name in (*_FILES, *(_aside(Path(name)).name for name in _FILES)):
        (state / name).unlink(missing_ok=True)


def write_private(path: Path, text: str) -> None:
    """Write ``text`` into ``path`` atomically, readable only by its owner."""
    aside = _aside(path)
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    aside.replace(path)


def _aside(path: Path) -> Path:
    return path.with_name(f"{path.name}.new")


def shown(path: Path) -> str:
    """Return ``path`` as a person would write it from here."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
