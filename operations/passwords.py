"""Passwords of brokers' users: a file for each, with the user's name, for its owner alone."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable
from pathlib import Path

from newsfabric.errors import ConfigError


def passwords_in(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """Return the password of each of ``names``; make missing ones, and ``folder`` too.

    ConfigError if one can't be read or written.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return {name: _password(folder / name) for name in names}
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigError(f"passwords: {exc}") from exc


def _password(path: Path) -> str:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        found = path.read_text(encoding="utf-8").strip()
        if not found:
            raise ConfigError(f"{path} is empty: remove it, and another is made") from None
        return found
    with open(descriptor, "w", encoding="utf-8") as file:
        password = secrets.token_urlsafe(24)
        file.write(password + "\n")
    return password
