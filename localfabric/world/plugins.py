"""The plugins that a node finds: those that it uses, and what they need, out of all that there are.

Erlang looks for each module in one folder after another. Of all plugins only half are needed, and
a node that finds no others starts sooner: RabbitMQ 4.3.6 takes 3.2 s of a processor
instead of 6.4, 4.0.5 4.0 instead of 7.0, 3.10.8 8.6 instead of 10.0 (one of two slow cores).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

# What the server itself is, though no plugin asks for it.
_SERVER: Final = ("rabbit", "rabbitmq_prelaunch")
_NEEDS: Final = re.compile(r"\{(?:optional_|included_)?applications,\s*\[([^\]]*)\]")


def link_plugins(installed: Path, names: Iterable[str], folder: Path) -> None:
    """Make ``folder`` hold links to the plugins ``names`` of ``installed``, and to what they need.

    An archive (``.ez``) is linked in any case, since what it needs isn't read. A plugin that isn't
    there is left to the node, which names it.
    """
    folder.mkdir(exist_ok=True)
    for link in folder.iterdir():
        link.unlink()
    unpacked = {each.name.rpartition("-")[0]: each for each in installed.glob("*-*/")}
    needed = _with_what_they_need([*_SERVER, *names], unpacked)
    for plugin in [*(unpacked[name] for name in needed), *installed.glob("*.ez")]:
        (folder / plugin.name).symlink_to(plugin.absolute())


def _with_what_they_need(names: Iterable[str], unpacked: Mapping[str, Path]) -> set[str]:
    needed: set[str] = set()
    asked = list(names)
    while asked:
        name = asked.pop()
        # Erlang's own applications are no plugins.
        if name in unpacked and name not in needed:
            needed.add(name)
            asked += _needs(unpacked[name] / "ebin" / f"{name}.app")
    return needed


def _needs(application: Path) -> list[str]:
    """The applications that an application's description (Erlang's app(4)) names."""
    text = application.read_text("utf-8") if application.exists() else ""
    return [name.strip(" \n'") for names in _NEEDS.findall(text) for name in names.split(",")]
