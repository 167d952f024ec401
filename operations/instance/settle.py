"""``settle``: makes this machine a box, at each boot, and starts its services.

It writes the files of :mod:`operations.instance.files`, each atomically, and installs the image's
units. A second run writes the same. If metadata, AWS or the password from the core isn't available
yet, it fails with one line: systemd retries after some seconds, and until it has worked the box
isn't ready and gets no reader.

``renew``: reads again the files that all boxes share, while the box runs. It starts no service: a
drained box stays so.
"""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Protocol

from newsfabric.errors import ConfigError
from operations.instance.description import MAX_BYTES, Description, parse, role_of
from operations.instance.files import (
    STORE,
    File,
    Secrets,
    files,
    login_in,
    password_in,
    pem_in,
    shared_files,
)

logger = logging.getLogger(__name__)

#: The image's files for a box, written by Ansible's role ``instance``.
IMAGE: Final = "opt/newsfabric/box"
INSTANCE: Final = "etc/newsfabric/instance.json"
_COOKIE: Final = "etc/newsfabric/secrets/cookie"
# The targets of the image's files. Units in /run have lower priority than Ansible's in /etc.
_UNITS: Final = "run/systemd/system"
_COPIES: Final = {
    "newsfabric-gateway.service": f"{_UNITS}/newsfabric-gateway.service",
    "newsfabric-retail-agent.service": f"{_UNITS}/newsfabric-retail-agent.service",
    "newsfabric-leave.service": f"{_UNITS}/newsfabric-leave.service",
    "rabbitmq-unit.conf": f"{_UNITS}/rabbitmq-server.service.d/newsfabric.conf",
    "rabbitmq.conf": "etc/rabbitmq/rabbitmq.conf",
    "advanced.config": "etc/rabbitmq/advanced.config",
    "rabbitmq-env.conf": "etc/rabbitmq/rabbitmq-env.conf",
    "enabled_plugins": "etc/rabbitmq/enabled_plugins",
}
GATEWAY: Final = "newsfabric-gateway.service"
# Exists while the gateway may have a password of the store that was replaced.
_OLDER: Final = "etc/newsfabric/gateway-is-older"
SERVICES: Final = (
    "rabbitmq-server.service",
    GATEWAY,
    "newsfabric-retail-agent.service",
    "newsfabric-leave.service",
)


class SecretsOf(Protocol):
    """Secrets Manager, as far as a box uses it."""

    def secret(self, name: str) -> str:
        """Return the secret's text."""
        ...


def described(root: Path) -> Description | None:
    """Return the box that ``instance.json`` describes; None if it describes another part.

    ConfigError for a description that can't be read, is longer than 64 KiB, or is invalid.
    """
    path = root / INSTANCE
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(MAX_BYTES + 1)
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigError(f"{path}: {exc}") from exc
    if len(text) > MAX_BYTES:
        raise ConfigError(f"{path}: more than {MAX_BYTES} bytes")
    return parse(text) if role_of(text) == "retail" else None


def settle(
    root: Path,
    description: Description,
    box: str,
    cloud: SecretsOf,
    run: Callable[[Sequence[str]], None],
    *,
    give: Callable[[Path, str, str], None] | None = None,
) -> None:
    """Write the files of ``box`` below ``root``, and start its services by ``run``.

    ``give(path, user, group)`` changes a file's owner; None leaves it (tests).
    """
    names = description.secrets
    found = Secrets(
        box=password_in(cloud.secret(names.boxes + box), names.boxes + box),
        store=login_in(cloud.secret(names.store), names.store),
        tls=pem_in(cloud.secret(names.tls), names.tls),
    )
    cookie = _cookie(root)
    for file in files(description, box, found, cookie):
        _write(root, file, "root", give)
    _write(
        root, File("/var/lib/rabbitmq/.erlang.cookie", cookie, 0o400, "rabbitmq"), "rabbitmq", give
    )
    for source, target in _COPIES.items():
        _copy(root / IMAGE / source, root / target)
    run(["systemctl", "daemon-reload"])
    run(["systemctl", "start", "--no-block", *SERVICES])
    logger.info("%s is a box of %s; its services start", box, description.region)


def renew(
    root: Path,
    description: Description,
    cloud: SecretsOf,
    run: Callable[[Sequence[str]], None],
    *,
    give: Callable[[Path, str, str], None] | None = None,
) -> None:
    """Write the files that all boxes share, if changed; the rest as :func:`settle`.

    Programs read certificates again by themselves. The gateway has a copy of the store's password:
    its control plane is killed, and the next one has the new password. Readers stay with the data
    plane. A run that ends before the kill leaves a file, by which the next run does it.
    """
    names = description.secrets
    store = login_in(cloud.secret(names.store), names.store)
    tls = pem_in(cloud.secret(names.tls), names.tls)
    older = root / _OLDER
    for file in shared_files(store, tls):
        path = root / file.path.lstrip("/")
        # A secret may have got another part since the box was settled.
        if path.exists() and path.read_text(encoding="utf-8") == file.text:
            continue
        if file.path == STORE:
            older.touch()
        _write(root, file, "root", give)
        logger.info("%s is another", file.path)
    if older.exists():
        run(["systemctl", "kill", "--kill-whom=main", "--signal=KILL", GATEWAY])
        older.unlink()


def systemctl(command: Sequence[str]) -> None:
    """Run ``command``; ConfigError with its stderr if it fails, or takes 30 s."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    except subprocess.TimeoutExpired as exc:
        raise ConfigError(f"{' '.join(command)}: no end after {exc.timeout:.0f} s") from exc
    if done.returncode != 0:
        raise ConfigError(f"{' '.join(command)}: {done.stderr.strip()[:500]}")


def chown(path: Path, user: str, group: str) -> None:
    """Change the owner and group of ``path``."""
    shutil.chown(path, user, group)


def _cookie(root: Path) -> str:
    try:
        return (root / _COOKIE).read_text(encoding="ascii").strip() or secrets.token_hex(32)
    except FileNotFoundError:
        return secrets.token_hex(32)


def _write(
    root: Path, file: File, user: str, give: Callable[[Path, str, str], None] | None
) -> None:
    path = root / file.path.lstrip("/")
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.new")
    new.unlink(missing_ok=True)
    # Never readable by others, not even for a moment.
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with open(descriptor, "w", encoding="utf-8") as stream:
        stream.write(file.text)
    # Before the change of owner: afterwards only the owner may.
    new.chmod(file.mode)
    if give is not None:
        give(new, user, file.group)
    new.replace(path)


def _copy(source: Path, target: Path) -> None:
    try:
        text = source.read_text(encoding="utf-8")
    except OSError as exc:
        raise ConfigError(f"{source}: {exc.strerror}: this image isn't made for boxes") from exc
    _write(Path("/"), File(str(target), text), "root", None)
