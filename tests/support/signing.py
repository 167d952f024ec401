"""An issuer of good and bad tokens, made of PyJWT and keys of its own."""

from __future__ import annotations

import base64
import functools
import hashlib
import hmac
import json
import time
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

AUDIENCE = "readers"
ISSUER = "https://accounts.example.org"
SECRET = b"a secret of thirty-two bytes or more"


@functools.cache
def ed25519(name: str = "first") -> Ed25519PrivateKey:
    """Return the key of that name; the same one each time."""
    return Ed25519PrivateKey.from_private_bytes(hashlib.sha256(name.encode()).digest())


@functools.cache
def rsa_key(bits: int = 2048) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=bits)


@functools.cache
def elliptic() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def public_pem(key: Any) -> bytes:
    pem: bytes = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return pem


def private_pem(key: Any) -> bytes:
    pem: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return pem


def jwk(key: Any, kid: str | None = None, **more: Any) -> dict[str, Any]:
    """Return the public half of ``key`` (or a secret, bytes) as a JSON Web Key."""
    if isinstance(key, bytes):
        entry: dict[str, Any] = {"kty": "oct", "k": _text(key)}
    elif isinstance(key, rsa.RSAPrivateKey):
        entry = jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key(), as_dict=True)
    elif isinstance(key, ec.EllipticCurvePrivateKey):
        entry = jwt.algorithms.ECAlgorithm.to_jwk(key.public_key(), as_dict=True)
    else:
        entry = jwt.algorithms.OKPAlgorithm.to_jwk(key.public_key(), as_dict=True)
    entry = {name: value for name, value in entry.items() if name != "key_ops"}
    return entry | ({} if kid is None else {"kid": kid}) | more


def jwks(*entries: dict[str, Any]) -> bytes:
    return json.dumps({"keys": list(entries)}).encode()


def token(
    user: str = "42",
    *,
    key: Any = None,
    algorithm: str = "EdDSA",
    kid: str | None = None,
    ttl: float | None = 600.0,
    issued: float | None = None,
    **claims: Any,
) -> str:
    """Return a token of ``user``, signed by ``key``; ``claims`` replace or (None) remove others."""
    now = time.time() if issued is None else issued
    made: dict[str, Any] = {"sub": user, "iat": now, "aud": AUDIENCE, "iss": ISSUER}
    if ttl is not None:
        made["exp"] = now + ttl
    made |= claims
    made = {name: value for name, value in made.items() if value is not None}
    return signed(made, key=key, algorithm=algorithm, kid=kid)


def signed(
    claims: Any,
    *,
    key: Any = None,
    algorithm: str = "EdDSA",
    kid: str | None = None,
    **headers: Any,
) -> str:
    """Sign any JSON (or bytes) as the payload of a token; PyJWT itself would refuse bad ones."""
    head = {"typ": "JWT", "alg": algorithm} | ({} if kid is None else {"kid": kid}) | headers
    payload = claims if isinstance(claims, bytes) else json.dumps(claims).encode()
    start = f"{_text(json.dumps(head).encode())}.{_text(payload)}"
    return f"{start}.{_text(_signature(start.encode(), key or ed25519(), algorithm))}"


def _signature(data: bytes, key: Any, algorithm: str) -> bytes:
    if algorithm == "none":
        return b""
    if isinstance(key, bytes):
        return hmac.digest(key, data, "sha256")
    chosen = {"EdDSA": "EdDSA", "RS256": "RS256", "ES256": "ES256"}[algorithm]
    signature: bytes = jwt.get_algorithm_by_name(chosen).sign(data, key)
    return signature


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def keys_file(folder: Path, *keys: Any) -> str:
    """Write a PEM file with the public halves of ``keys``, by default of :func:`ed25519`."""
    path = folder / "token-keys.pem"
    path.write_bytes(b"".join(public_pem(key) for key in keys or (ed25519(),)))
    return str(path)
