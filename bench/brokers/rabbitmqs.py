"""The RabbitMQs that are compared: the installed one, then those that were unpacked beside it.

The environment can name more folders, since a RabbitMQ may lie anywhere.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from bench.rows import NotMeasured, measured
from localfabric.world.rabbitmq_home import RabbitmqHome, find_rabbitmq, rabbitmq_in

VARIABLE: Final = "NEWSFABRIC_BENCH_RABBITMQ"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rabbitmq:
    """A RabbitMQ: its name in the table, and the folder to name at ``up`` (None: none needed)."""

    name: str
    home: RabbitmqHome
    folder: Path | None

    @property
    def options(self) -> tuple[str, ...]:
        """The options of ``newsfabric up`` for a world on this RabbitMQ."""
        return () if self.folder is None else ("--rabbitmq", str(self.folder))


def compared_rabbitmqs(
    root: Path, environ: Mapping[str, str], *, system: Path = Path("/")
) -> list[Rabbitmq]:
    """Return each RabbitMQ once. For a folder without one, the reason is printed to stderr.

    ``root`` and ``system`` as in :func:`~localfabric.world.rabbitmq_home.find_rabbitmq`, whose
    choice is the first. The next are the trees ``.tools/rabbitmq-*`` of ``root``, then the folders
    in ``environ``'s NEWSFABRIC_BENCH_RABBITMQ, separated by commas.
    """
    found: list[Rabbitmq] = []
    for folder in (None, *_folders(root, environ)):
        home = measured(functools.partial(_home, folder, root, environ, system))
        if isinstance(home, NotMeasured):
            print(f"  not compared: {home.why}", file=sys.stderr)
        elif home.sbin not in {each.home.sbin for each in found}:
            taken = home.version in {each.name for each in found}
            name = f"{home.version} in {folder}" if taken else home.version
            found.append(Rabbitmq(name=name, home=home, folder=folder))
    return found


def _folders(root: Path, environ: Mapping[str, str]) -> Iterator[Path]:
    yield from sorted(root.glob(".tools/rabbitmq-*/"))
    for named in environ.get(VARIABLE, "").split(","):
        if named.strip():
            yield Path(named.strip())


def _home(
    folder: Path | None, root: Path, environ: Mapping[str, str], system: Path
) -> RabbitmqHome:
    if folder is None:
        return find_rabbitmq(root, environ, system=system)
    return rabbitmq_in(folder, environ, named_as=str(folder), system=system)
