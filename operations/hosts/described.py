"""``hosts.json``: the machines of a fabric, and how to reach them. Pure but for reading the file.

::

    {"ssh": ["ssh", "-F", "/…/ssh_config"],
     "hosts": [{"name": "oregon-core-1", "place": "oregon", "part": "core"}],
     "frontdesks": {"oregon": "http://10.77.1.21:8080"},
     "commands": {"cut": ["…"], "heal": ["…"], "kill": ["…"], "boot": ["…"]}}

``commands`` are optional: programs that cut and heal the link between two places, cut a machine's
power and boot it again. The names of places or machines follow as arguments.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal, cast, get_args

import orjson

from newsfabric import json_fields
from newsfabric.errors import ConfigError
from newsfabric.settings import is_name
from newsfabric.spelling import meant

HOSTS_FILE: Final = "hosts.json"
_MOST_HOSTS: Final = 1_000
_MOST_WORDS: Final = 32

HostPart = Literal["client", "core", "store", "retail", "proxy"]
Verb = Literal["cut", "heal", "kill", "boot"]


@dataclasses.dataclass(frozen=True, slots=True)
class Host:
    """A machine of the region or proxy cluster ``place``."""

    name: str
    place: str
    part: HostPart


@dataclasses.dataclass(frozen=True, slots=True)
class Hosts:
    """The content of ``hosts.json``; ``folder`` is the file's."""

    folder: Path
    ssh: tuple[str, ...]
    hosts: tuple[Host, ...]
    frontdesks: Mapping[str, str]
    commands: Mapping[Verb, tuple[str, ...]]

    @property
    def places(self) -> list[str]:
        """Regions and proxy clusters, in the order of their first hosts."""
        return list(dict.fromkeys(host.place for host in self.hosts))

    def links(self) -> dict[str, tuple[str, str]]:
        """Return the link between each two places, by its name."""
        return {f"{a}-{b}-link": (a, b) for a, b in itertools.combinations(self.places, 2)}

    def frontdesk_urls(self, first: str | None) -> list[str]:
        """Return the frontdesks, that of the region ``first`` before the others; never empty.

        ConfigError if there is none, or none in that region.
        """
        if not self.frontdesks or (first is not None and first not in self.frontdesks):
            known = ", ".join(self.frontdesks) or "none"
            near = meant(first or "", self.frontdesks)
            raise ConfigError(f"no frontdesk in {first or HOSTS_FILE}{near} (there is: {known})")
        order = sorted(self.frontdesks, key=lambda region: region != first)
        return [self.frontdesks[region] for region in order]


def read_hosts(folder: Path) -> Hosts | None:
    """Return the fabric described in ``folder``; None if there is none.

    ConfigError if it can't be read, or if somebody else may have written it: it names programs,
    which run with the rights of the caller.
    """
    path = folder / HOSTS_FILE
    try:
        with path.open("rb") as file:
            _check_owner(path, os.fstat(file.fileno()))
            text = file.read()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as exc:
        raise ConfigError(f"{path}: {exc.strerror}") from exc
    try:
        return parse_hosts(folder, orjson.loads(text))
    except ValueError as exc:
        raise ConfigError(f"{path}: {exc}") from exc


def _check_owner(path: Path, found: os.stat_result) -> None:
    if found.st_uid not in (0, os.geteuid()) or found.st_mode & stat.S_IWOTH:
        raise ConfigError(
            f"{path} names programs to run, and isn't yours alone: look who wrote it, and make it "
            "yours (chown, chmod o-w)"
        )


def parse_hosts(folder: Path, document: Any) -> Hosts:
    """Parse the document; ValueError with the error in it."""
    fields = json_fields.mapping(document, "the document")
    hosts = tuple(_host(entry) for entry in json_fields.listed(fields, "hosts", _MOST_HOSTS))
    if len({host.name for host in hosts}) != len(hosts):
        raise ValueError("two hosts have one name")
    frontdesks = json_fields.mapping(fields.get("frontdesks", {}), "frontdesks")
    commands = json_fields.mapping(fields.get("commands", {}), "commands")
    if unknown := set(commands) - set(get_args(Verb)):
        raise ValueError(f"commands: no {sorted(unknown)[0]}")
    return Hosts(
        folder=folder,
        ssh=tuple(_words(fields, "ssh")),
        hosts=hosts,
        frontdesks={place: json_fields.text(frontdesks, place) for place in frontdesks},
        commands={cast(Verb, verb): tuple(_words(commands, verb)) for verb in commands},
    )


def _host(entry: Any) -> Host:
    fields = json_fields.mapping(entry, "a host")
    part = json_fields.text(fields, "part")
    if part not in get_args(HostPart):
        raise ValueError(f"part must be one of {', '.join(get_args(HostPart))}, not {part!r}")
    return Host(_name(fields, "name"), _name(fields, "place"), cast(HostPart, part))


def _name(fields: Mapping[str, Any], name: str) -> str:
    found = json_fields.text(fields, name)
    # It becomes an argument of ssh, where a leading dash would be an option.
    if not is_name(found):
        raise ValueError(f"{name} {found!r} is no name")
    return found


def _words(fields: Mapping[str, Any], name: str) -> Iterator[str]:
    words = json_fields.listed(fields, name, _MOST_WORDS)
    if not words or not all(isinstance(word, str) for word in words):
        raise ValueError(f"{name} must be a program and its words")
    return iter(words)
