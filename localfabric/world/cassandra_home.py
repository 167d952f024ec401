"""Finds Cassandra's jars, and a Java to run them, on this machine.

It starts nothing and installs nothing (``scripts/setup cassandra`` installs). Two places are tried:
``$NEWSFABRIC_CASSANDRA_HOME`` and ``.tools/cassandra``, each with the jars in ``lib``. Only jars
are needed: the release archive's scripts merely build a command line.

Cassandra 5.0 runs on Java 17 and 21, not on 24 or newer, which have no security manager any more.
Debian may have a newer one as well, and it is then the ``java`` of the ``PATH``.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from newsfabric.errors import SetupError

# The same as in scripts/setup.
_JAVAS: Final = ("java-17-*", "java-21-*")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CassandraHome:
    """An installed Cassandra: its jars, and the Java that runs them."""

    version: str
    lib: Path
    java: Path


def find_cassandra(
    root: Path, environ: Mapping[str, str], *, system: Path = Path("/")
) -> CassandraHome:
    """Return the Cassandra to run; raise :class:`SetupError` when there is none.

    ``root`` is the checkout (with ``.tools/cassandra``), ``system`` the folder that stands for
    ``/``.
    """
    java = _java(environ, system / "usr/lib/jvm")
    if named := environ.get("NEWSFABRIC_CASSANDRA_HOME"):
        home = _home(Path(named) / "lib", java)
        if home is None:
            raise SetupError(f"NEWSFABRIC_CASSANDRA_HOME={named} has no lib/cassandra-all-*.jar")
        return home
    home = _home(root.resolve() / ".tools" / "cassandra" / "lib", java)
    if home is None:
        raise SetupError(
            "Cassandra is missing: run `scripts/setup cassandra` in a checkout, or unpack "
            "Cassandra 5.0 and name its folder in NEWSFABRIC_CASSANDRA_HOME. "
            "--store sqlite needs none"
        )
    return home


def _java(environ: Mapping[str, str], installed: Path) -> Path:
    if home := environ.get("JAVA_HOME"):
        java = Path(home) / "bin" / "java"
        if os.access(java, os.X_OK):
            return java
        raise SetupError(f"JAVA_HOME={home} has no bin/java")
    for wanted in _JAVAS:
        for java in sorted(installed.glob(f"{wanted}/bin/java")):
            return java
    found = shutil.which("java", path=environ.get("PATH", os.defpath))
    if found is None:
        raise SetupError(
            "Cassandra needs Java 17 or 21: install the package openjdk-17-jre-headless or "
            "openjdk-21-jre-headless"
        )
    return Path(found)


def _home(lib: Path, java: Path) -> CassandraHome | None:
    for jar in lib.glob("cassandra-all-*.jar"):
        version = jar.name.removeprefix("cassandra-all-").removesuffix(".jar")
        return CassandraHome(version=version, lib=lib, java=java)
    return None
