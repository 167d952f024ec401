"""Settings of a process at its start: the fabric's regions and nodes, and credentials.

``fabric.json`` lists every region with its brokers; deployment writes it, the world on one machine
writes its own. It holds no secret: users and passwords come from the environment
(:func:`credentials_from`), as do the files of TLS. Both are read once, in a ``__main__``, and
passed on as values.

.. code-block:: json

    {"regions": [{"name": "oregon",
                  "frontdesk_url": "http://127.0.0.1:15080",
                  "distances": {"dublin": 130},
                  "client": [{"name": "oregon-client-1", "amqp_url": "amqp://127.0.0.1:15672/%2F",
                              "management_url": "http://127.0.0.1:15673"}],
                  "core": [{"name": "oregon-core-1", "amqp_url": "…", "management_url": "…"}]}],
     "proxies": [{"name": "harbor", "nearest": "oregon",
                  "nodes": [{"name": "harbor-1", "amqp_url": "…", "management_url": "…"}]}]}

The first region isn't special: regions are equal, and an option names a process's own.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit, urlunsplit

from newsfabric.errors import ConfigError
from newsfabric.numbers import is_number
from newsfabric.spelling import unknown_name

# Prefixes of the variables with a login.
AMQP_LOGIN: Final = "NEWSFABRIC_AMQP"
SHOVEL_LOGIN: Final = "NEWSFABRIC_SHOVEL"

_MAX_DISTANCE: Final = 1e9
# Names become words of routing keys and parts of queue names.
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,62}", re.ASCII)


@dataclasses.dataclass(frozen=True, slots=True)
class Node:
    """A RabbitMQ node: its AMQP and management listeners, without credentials.

    ``name`` is also the left part of its Erlang node name (``name@localhost`` in the world).
    """

    name: str
    amqp_url: str
    management_url: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """A region: its client cluster, its core cluster, its frontdesk's base URL.

    ``distances`` has the distances of other regions, by name, in any unit (round trips in ms, say).
    """

    name: str
    frontdesk_url: str
    client: tuple[Node, ...]
    core: tuple[Node, ...]
    distances: Mapping[str, float] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ProxyCluster:
    """A cluster that publishers far from every region publish to, with no other purpose.

    Each region gets a copy of gold; all other messages are sent to ``nearest``, a region's name.
    """

    name: str
    nodes: tuple[Node, ...]
    nearest: str


@dataclasses.dataclass(frozen=True, slots=True)
class Fabric:
    """All regions. All are equal."""

    regions: tuple[Region, ...]
    proxies: tuple[ProxyCluster, ...] = ()

    def region(self, name: str) -> Region:
        """Return the region called ``name``; ConfigError lists the known ones."""
        for region in self.regions:
            if region.name == name:
                return region
        raise unknown_name(name, (each.name for each in self.regions), "region", "in the fabric")

    def others(self, name: str) -> tuple[Region, ...]:
        """Return every region but ``name``: the nearest first, without a distance last."""
        distances = self.region(name).distances
        others = (region for region in self.regions if region.name != name)
        return tuple(sorted(others, key=lambda other: distances.get(other.name, math.inf)))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """PEM files for connections that we open. ``authorities`` None: the machine's own authorities.

    With a ``certificate`` (and its ``key``) brokers authenticate us by it, not by a password.
    """

    authorities: Path | None = None
    certificate: Path | None = None
    key: Path | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class ServerFiles:
    """PEM files of a port of ours: a certificate with its chain, and its key."""

    certificate: Path
    key: Path


@dataclasses.dataclass(frozen=True, slots=True)
class Credentials:
    """A broker's user and TLS files. ``repr`` hides the password, so no log line can leak it."""

    username: str = "guest"
    password: str = dataclasses.field(default="guest", repr=False)
    tls: TlsFiles = dataclasses.field(default_factory=TlsFiles)

    def in_url(self, amqp_url: str) -> str:
        """Return ``amqp_url`` with these credentials, for drivers and shovels. Never log it."""
        parts = urlsplit(amqp_url)
        host = parts.netloc.rsplit("@", 1)[-1]
        login = f"{quote(self.username, safe='')}:{quote(self.password, safe='')}"
        return urlunsplit(parts._replace(netloc=f"{login}@{host}"))


def credentials_from(environ: Mapping[str, str], prefix: str = AMQP_LOGIN) -> Credentials:
    """Return the login in NEWSFABRIC_AMQP_USERNAME, …_PASSWORD[_FILE], …_CERT_FILE, …_KEY_FILE.

    The default is ``guest``, which RabbitMQ accepts from loopback alone. Authorities are those of
    NEWSFABRIC_TLS_CA_FILE. ConfigError if a file is missing or can't be read.
    """
    username = environ.get(f"{prefix}_USERNAME", "guest")
    tls = _tls_from(environ, prefix)
    if tls.certificate is not None and f"{prefix}_USERNAME" not in environ:
        raise ConfigError(f"{prefix}_USERNAME: write the common name of the certificate there")
    path = file_from(environ, f"{prefix}_PASSWORD_FILE")
    if path is None:
        return Credentials(username, environ.get(f"{prefix}_PASSWORD", "guest"), tls)
    try:
        return Credentials(username, path.read_text(encoding="utf-8").strip(), tls)
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigError(f"{prefix}_PASSWORD_FILE: {exc}") from exc


def authorities_from(environ: Mapping[str, str]) -> Path | None:
    """Return NEWSFABRIC_TLS_CA_FILE, the authorities of the fabric; None: the machine's own."""
    return file_from(environ, "NEWSFABRIC_TLS_CA_FILE")


def server_files_from(environ: Mapping[str, str]) -> ServerFiles | None:
    """Return NEWSFABRIC_TLS_CERT_FILE and …_KEY_FILE, for this process's port; None: plain HTTP."""
    pair = _pair_from(environ, "NEWSFABRIC_TLS")
    return None if pair is None else ServerFiles(*pair)


def file_from(environ: Mapping[str, str], variable: str) -> Path | None:
    """Return the file that ``variable`` names, None if it isn't set.

    A text without a slash is the name of a credential that systemd passes (``LoadCredential=``);
    ConfigError if systemd passed none. The file's existence isn't checked.
    """
    text = environ.get(variable)
    if text is None or "/" in text:
        return None if text is None else Path(text)
    folder = environ.get("CREDENTIALS_DIRECTORY")
    if not folder or not text or text in (".", ".."):
        raise ConfigError(
            f"{variable}: {text!r} is no path (it has no slash) and no credential: "
            "systemd passed none"
        )
    return Path(folder) / text


def _tls_from(environ: Mapping[str, str], prefix: str) -> TlsFiles:
    # Shovels' certificates are on the broker that runs them, so they are no credentials of ours.
    variables = {} if prefix == SHOVEL_LOGIN else environ
    pair = _pair_from(
        environ, prefix, CREDENTIALS_DIRECTORY=variables.get("CREDENTIALS_DIRECTORY", "")
    )
    certificate, key = pair or (None, None)
    return TlsFiles(authorities=authorities_from(environ), certificate=certificate, key=key)


def _pair_from(environ: Mapping[str, str], prefix: str, **changes: str) -> tuple[Path, Path] | None:
    variables = {**environ, **changes}
    certificate = file_from(variables, f"{prefix}_CERT_FILE")
    key = file_from(variables, f"{prefix}_KEY_FILE")
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise ConfigError(f"{prefix}_CERT_FILE and {prefix}_KEY_FILE: give both or none")
    return certificate, key


def shovel_credentials_from(environ: Mapping[str, str]) -> Credentials:
    """Return the login of shovels: NEWSFABRIC_SHOVEL_… as above, or the same as ours."""
    if f"{SHOVEL_LOGIN}_USERNAME" not in environ:
        return credentials_from(environ)
    return credentials_from(environ, SHOVEL_LOGIN)


def login_variables(username: str, password_file: Path, prefix: str = AMQP_LOGIN) -> dict[str, str]:
    """Return the environment that passes a login to a service."""
    return {f"{prefix}_USERNAME": username, f"{prefix}_PASSWORD_FILE": str(password_file)}


def without_login(url: str, where: str) -> str:
    """Return ``url`` itself; ConfigError if it holds a login, which ``ps`` and logs would show.

    ``where`` names the option or file it is from.
    """
    try:
        holds = "@" in urlsplit(url).netloc
    except ValueError as exc:
        raise ConfigError(f"{where}: not a URL: {exc}") from exc
    if holds:
        raise ConfigError(
            f"{where}: a URL holds no user and password, which others could read: set "
            f"{AMQP_LOGIN}_USERNAME and {AMQP_LOGIN}_PASSWORD_FILE"
        )
    return url


def is_name(text: str) -> bool:
    """Return whether ``text`` can name a region, node, box, service: ``[a-z0-9-]``, at most 63."""
    return _NAME.fullmatch(text) is not None


def check_name(text: str, source: str = "") -> None:
    """Raise ConfigError for a text that :func:`is_name` refuses, with ``source`` if given."""
    if not is_name(text):
        where = f"{source}: " if source else ""
        raise ConfigError(f"{where}{text!r} is no name (a-z, 0-9 and -, at most 63)")


def load_fabric(path: Path) -> Fabric:
    """Read ``fabric.json``; ConfigError with the fault and its place."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as exc:
        raise ConfigError(f"no {path}: name one, as a world has it in .world/fabric.json") from exc
    except OSError as exc:
        raise ConfigError(f"{path}: {exc.strerror}") from exc
    except ValueError as exc:
        raise ConfigError(f"{path} is no fabric.json: {exc}") from exc
    return parse_fabric(document, source=str(path))


def parse_fabric(document: Any, *, source: str = "fabric.json") -> Fabric:
    """Return the fabric in a parsed ``fabric.json``; ConfigError, with ``source``, if invalid."""
    try:
        regions = tuple(
            Region(
                name=entry["name"],
                frontdesk_url=entry["frontdesk_url"],
                client=tuple(Node(**node) for node in entry["client"]),
                core=tuple(Node(**node) for node in entry["core"]),
                distances=entry.get("distances", {}),
            )
            for entry in document["regions"]
        )
        proxies = tuple(
            ProxyCluster(
                name=entry["name"],
                nodes=tuple(Node(**node) for node in entry["nodes"]),
                nearest=entry["nearest"],
            )
            for entry in document.get("proxies", ())
        )
    except (KeyError, TypeError) as exc:
        raise ConfigError(f"{source}: missing or unknown field: {exc}") from exc
    _check(regions, proxies, source)
    return Fabric(regions, proxies)


def dump_fabric(fabric: Fabric) -> str:
    """Return ``fabric`` as the text of a ``fabric.json``."""
    return json.dumps(dataclasses.asdict(fabric), indent=2) + "\n"


def _check(regions: tuple[Region, ...], proxies: tuple[ProxyCluster, ...], source: str) -> None:
    if not regions:
        raise ConfigError(f"{source}: no region")
    nodes = [node for region in regions for node in region.client + region.core]
    nodes += [node for proxy in proxies for node in proxy.nodes]
    texts = [text for region in regions for text in (region.name, region.frontdesk_url)]
    texts += [text for proxy in proxies for text in (proxy.name, proxy.nearest)]
    _check_texts([*texts, *(text for node in nodes for text in dataclasses.astuple(node))], source)
    urls = [url for node in nodes for url in (node.amqp_url, node.management_url)]
    for url in (*urls, *(region.frontdesk_url for region in regions)):
        without_login(url, source)
    names = [region.name for region in regions] + [proxy.name for proxy in proxies]
    names += [node.name for node in nodes]
    for name in names:
        check_name(name, source)
        if names.count(name) > 1:
            raise ConfigError(f"{source}: {name!r} is there twice")
    for region in regions:
        if not region.client or not region.core:
            raise ConfigError(f"{source}: region {region.name!r} needs client and core nodes")
        _check_distances(region, {other.name for other in regions} - {region.name}, source)
    for proxy in proxies:
        if not proxy.nodes:
            raise ConfigError(f"{source}: proxy {proxy.name!r} needs nodes")
        if proxy.nearest not in {region.name for region in regions}:
            raise ConfigError(f"{source}: {proxy.nearest!r} is no region, so it isn't nearest")


def _check_distances(region: Region, others: set[str], source: str) -> None:
    if not isinstance(region.distances, dict):
        raise ConfigError(f"{source}: distances of {region.name!r} must be an object")
    for name, distance in region.distances.items():
        if name not in others:
            raise ConfigError(f"{source}: {region.name!r} is at a distance of no region {name!r}")
        if not is_number(distance, 0, _MAX_DISTANCE):
            raise ConfigError(f"{source}: {region.name!r} can't be {distance!r} from {name!r}")


def _check_texts(texts: list[str], source: str) -> None:
    for text in texts:
        if not isinstance(text, str):
            raise ConfigError(f"{source}: expected a name or URL, got {text!r}")
