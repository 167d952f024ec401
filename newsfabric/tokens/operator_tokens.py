"""Operators' tokens for sites without an identity provider: a key pair, and tokens signed with it.

The private key stays on the machine that deploys; frontdesks and gateways get the public one
(``--token-keys``). So the holder of the private key may also log in as any reader.
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

#: Frontdesks receive no revocations, so they refuse operators' tokens that are valid for longer.
LONGEST_S: Final = 86_400.0


def key_pair() -> tuple[str, str]:
    """Return a new private key (PKCS 8) and its public half, both as PEM. Ed25519."""
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return private.decode(), public.decode()


def public_of(path: Path) -> Path:
    """Return the path of the public half of the key at ``path``."""
    return path.with_name(f"{path.name}.pub")


def make_key(path: Path) -> None:
    """Write a new key to ``path``, for its owner alone, and its public half beside it.

    ConfigError if there is a key already, or it can't be written.
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
    """Return a token by which operator ``name`` sees the board for ``ttl`` seconds from now.

    ``path`` has the private key. ConfigError if it can't be read, or ``name`` is no user's id.
    """
    if not is_user(name):
        raise ConfigError(f"{name!r} is no user's id (letters, digits, _ and -, at most 64)")
    now = time.time()
    claims = {"sub": name, "iat": now, "exp": now + ttl, "operator": True}
    named = {"aud": audience, "iss": issuer}
    return signed(path, claims | {claim: text for claim, text in named.items() if text})


def signed(path: Path, claims: dict[str, Any]) -> str:
    """Return ``claims`` as a token, signed by the private key at ``path``; ConfigError if none."""
    try:
        key = load_pem_private_key(path.read_bytes(), password=None)
    except OSError as exc:
        raise ConfigError(f"can't read the key {path}: {exc.strerror}") from exc
    except (ValueError, TypeError) as exc:
        raise ConfigError(f"{path} has no private key") from exc
    if not isinstance(key, Ed25519PrivateKey):
        raise ConfigError(f"{path} has a key of another kind than Ed25519")
    return jwt.encode(claims, key, algorithm="EdDSA")
