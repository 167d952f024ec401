"""The RabbitMQ of each region of a world: one for all, or one of its own.

The choice made at ``up`` is stored in the world's options. So later starts of brokers (healing,
more boxes) use the same, whatever the environment has by then.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from localfabric.world.options import WorldOptions
from localfabric.world.rabbitmq_home import VARIABLE, RabbitmqHome, find_rabbitmq, rabbitmq_in

_CHECKOUT: Final = Path(__file__).resolve().parents[2]


def with_environments(options: WorldOptions, environ: Mapping[str, str]) -> WorldOptions:
    """Return ``options`` with the RabbitMQ that ``environ`` names, unless they name one."""
    named = environ.get(VARIABLE)
    if options.rabbitmq is not None or not named:
        return options
    return dataclasses.replace(options, rabbitmq=str(Path(named).absolute()))


def find_rabbitmqs(
    options: WorldOptions,
    environ: Mapping[str, str],
    *,
    root: Path = _CHECKOUT,
    system: Path = Path("/"),
) -> dict[str, RabbitmqHome]:
    """Return the RabbitMQ of each region, and of the proxy; SetupError for an invalid one.

    ``root`` and ``system`` as in :func:`~localfabric.world.rabbitmq_home.find_rabbitmq`.
    """
    own = dict(options.rabbitmq_of)
    unnamed = {name: value for name, value in environ.items() if name != VARIABLE}
    homes: dict[str | None, RabbitmqHome] = {}
    for folder in {own.get(place, options.rabbitmq) for place in options.places()}:
        if folder is None:
            homes[folder] = find_rabbitmq(root, unnamed, system=system)
        else:
            homes[folder] = rabbitmq_in(Path(folder), environ, named_as=folder, system=system)
    return {place: homes[own.get(place, options.rabbitmq)] for place in options.places()}
