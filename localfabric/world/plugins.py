"""The plugins for a node: of all installed ones those that it uses, and their dependencies.

Erlang looks for each module in one folder after another. Only half of the plugins are needed, and a
node that finds no others starts sooner: RabbitMQ 4.3.6 takes 3.2 s of a processor instead of 6.4,
4.0.5 4.0 instead of 7.0, 3.10.8 8.6 instead of 10.0 (one of two slow cores).

A node that boots loads every module of every application that it has, Erlang's too. Before OTP 26
Erlang doesn't cache the folders' contents: 3.10.8 tried to open 43,000 missing files. So all
modules are in one folder, too, which is searched first: 5.4 s instead of 8.6. (With a later Erlang
that saves nothing: 4.3.6 took 3.8 s instead of 3.2.)
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

# Applications of the server itself, on which no plugin depends.
_SERVER: Final = ("rabbit", "rabbitmq_prelaunch")
_NEEDS: Final = re.compile(r"\{(?:optional_|included_)?applications,\s*\[([^\]]*)\]")


def link_plugins(installed: Path, names: Iterable[str], folder: Path) -> None:
    """Link the plugins ``names`` of ``installed``, and their dependencies, in ``folder``.

    An archive (``.ez``) is linked in any case, since its dependencies aren't read. A missing plugin
    is left to the node, whose error names it.
    """
    folder.mkdir(exist_ok=True)
    for link in folder.iterdir():
        link.unlink()
    unpacked = {each.name.rpartition("-")[0]: each for each in installed.glob("*-*/")}
    needed = _with_what_they_need([*_SERVER, *names], unpacked)
    for plugin in [*(unpacked[name] for name in needed), *installed.glob("*.ez")]:
        (folder / plugin.name).symlink_to(plugin.absolute())


def link_modules(plugins: Path, erlang: Path, folder: Path) -> None:
    """Fill ``folder`` with links to the modules of the node's ``plugins`` and of the libraries in
    ``erlang``, unless it exists: nodes that stand side by side share it.

    Modules that aren't in it, such as those in archives, are found as before.
    """
    if folder.exists():
        return
    made = Path(tempfile.mkdtemp(prefix=".", dir=folder.parent))
    modules = {
        name: f"{place.resolve()}/{name}"
        # A plugin's own module wins over Erlang's of that name, as without this folder.
        for place in (*erlang.glob("*/ebin"), *plugins.glob("*/ebin"))
        for name in os.listdir(place)
        if name.endswith(".beam")
    }
    for name, module in modules.items():
        os.symlink(module, made / name)
    try:
        made.rename(folder)
    except OSError:
        # Another node was quicker.
        shutil.rmtree(made)


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
    """Return the applications that an application's description (Erlang's app(4)) names."""
    text = application.read_text("utf-8") if application.exists() else ""
    return [name.strip(" \n'") for names in _NEEDS.findall(text) for name in names.split(",")]
