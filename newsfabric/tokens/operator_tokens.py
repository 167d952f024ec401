"""Operators' tokens where the site has no identity provider: a key pair, and what it signs.

The private key stays on the machine that deploys; frontdesks and gateways are told the public one
(``--token-keys``). So who holds the private key may also log in as any reader.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from newsfabric.errors import ConfigError
from newsfabric.tokens import is_user

#: Frontdesks hear of no revocations, so they take no operator's token that is good for longer.
LONGEST_S: Final = 86_400.0


def key_pair() -> tuple[str, str]:
    """A fresh private key (PKCS 8) and its public half, both as PEM. Ed25519."""
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return private.decode(), public.decode()


def public_of(path: Path) -> Path:
    """Where the public half of the key at ``path`` lies."""
    return path.with_name(f"{path.name}.pub")


def make_key(path: Path) -> None:
    """Write a fresh key to ``path``, for its owner alone, and its public half beside it.

    ConfigError if there is one already, or it can't be written.
    """
    private, public = key_pair()
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(private)
        public_of(path).write_text(public, encoding="utf-8")
    except FileExistsError:
        raise ConfigError(f"{path} is there already: a new key would end its tokens") from None
    except OSError as exc:
        raise ConfigError(f"can't write {exc.filename}: {exc.strerror}") from exc


def operator_token(
    path: Path, name: str, ttl: float, *, audience: str | None = None, issuer: str | None = None
) -> str:
    """A token by which operator ``name`` sees the board for ``ttl`` seconds from now.

    ``path`` has the private key. ConfigError if it can't be read, or ``name`` is no user's id.
    """
    if not is_user(name):
        raise ConfigError(f"{name!r} is no user's id (letters, digits, _ and -, at most 64)")
    now = time.time()
    claims = {"sub": name, "iat": now, "exp": now + ttl, "operator": True}
    named = {"aud": audience, "iss": issuer}
    return signed(path, claims | {claim: text for claim, text in named.items() if text})


def signed(path: Path, claims: dict[str, Any]) -> str:
    """``claims`` as a token, by the private key at ``path``; ConfigError if that is none."""
    try:
        key = load_pem_private_key(path.read_bytes(), password=None)
    except OSError as exc:
        raise ConfigError(f"can't read the key {path}: {exc.strerror}") from exc
    except (ValueError, TypeError) as exc:
        raise ConfigError(f"{path} has no private key") from exc
    if not isinstance(key, Ed25519PrivateKey):
        raise ConfigError(f"{path} has a key of another kind than Ed25519")
    return jwt.encode(claims, key, algorithm="EdDSA")
