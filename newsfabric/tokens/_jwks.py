"""Keys parsed from bytes: PEM (RFC 7468), or a JSON Web Key Set (RFC 7517). Pure.

A set may hold keys that are not for us (another use, an unsupported curve): these are ignored. A
set without a single key for us is invalid: ValueError, and a caller that has keys already keeps
those.

Shared secrets (``oct``) are taken only from files: a secret that a URL hands out is no secret.
"""

from __future__ import annotations

import re
from typing import Any, Final

import jwt
import orjson
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from newsfabric.tokens import Algorithm, Key, KeySet

MAX_KEYS: Final = 64
# RFC 7518 section 3.3, and section 3.2: as many bits as the hash.
_RSA_BITS: Final = 2048
_SECRET_BYTES: Final = 32
# The largest RSA key with an acceptable cost of verification.
_RSA_MOST_BITS: Final = 8192

_PEM: Final = re.compile(rb"-----BEGIN ([A-Z ]+)-----.*?-----END \1-----", re.DOTALL)


def parse_keys(data: bytes, *, secrets: bool) -> KeySet:
    """Return the keys in ``data``; ValueError, with a text for a person, if none fits.

    Shared secrets are accepted if ``secrets``.
    """
    if data.lstrip().startswith(b"{"):
        return _parse_jwks(data, secrets=secrets)
    return _parse_pem(data)


def _parse_pem(data: bytes) -> KeySet:
    keys = []
    for found in _PEM.finditer(data):
        if found[1] != b"PUBLIC KEY":
            raise ValueError(f"a {found[1].decode().lower()}: only public keys belong here")
        try:
            keys.append(_asymmetric(None, load_pem_public_key(found[0])))
        except (ValueError, UnsupportedAlgorithm) as exc:
            raise ValueError(f"a public key that is none of ours: {exc}") from exc
    if not keys:
        raise ValueError("neither PEM nor a JSON Web Key Set")
    return KeySet(tuple(keys[:MAX_KEYS]))


def _asymmetric(kid: str | None, material: Any) -> Key:
    if isinstance(material, Ed25519PublicKey):
        return Key(kid, "EdDSA", material)
    if isinstance(material, RSAPublicKey):
        if not _RSA_BITS <= material.key_size <= _RSA_MOST_BITS:
            raise ValueError(f"an RSA key of {material.key_size} bits")
        return Key(kid, "RS256", material)
    raise ValueError("it is for neither EdDSA (Ed25519) nor RS256")


def _parse_jwks(data: bytes, *, secrets: bool) -> KeySet:
    try:
        document = orjson.loads(data)
    except orjson.JSONDecodeError as exc:
        raise ValueError("not JSON") from exc
    entries = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        raise ValueError('a key set is {"keys": […]}')
    found = [_jwk(entry, secrets=secrets) for entry in entries[:MAX_KEYS]]
    keys = tuple(key for key in found if key is not None)
    if not keys:
        raise ValueError("no key for EdDSA, RS256 or, in a file, HS256")
    return KeySet(keys)


def _jwk(entry: Any, *, secrets: bool) -> Key | None:
    """Return the key in ``entry``; None if it isn't for us."""
    if not isinstance(entry, dict) or entry.get("use") not in (None, "sig"):
        return None
    kid = entry.get("kid")
    if not (kid is None or isinstance(kid, str)):
        return None
    try:
        key = _read(entry, kid, secrets=secrets)
    except (jwt.PyJWTError, ValueError, TypeError, KeyError, UnsupportedAlgorithm):
        return None
    # RFC 7517 section 4.4: a key may name its algorithm, and is used for no other.
    return key if entry.get("alg") in (None, key.algorithm) else None


_KINDS: Final[dict[Any, Algorithm]] = {"OKP": "EdDSA", "RSA": "RS256", "oct": "HS256"}


def _read(entry: dict[str, Any], kid: str | None, *, secrets: bool) -> Key:
    algorithm = _KINDS[entry.get("kty")]
    if algorithm == "HS256" and not secrets:
        raise ValueError("a secret that anyone can read")
    # Only its public half: a set that holds private keys by mistake is used all the same.
    public = {name: value for name, value in entry.items() if name != "d"}
    material = jwt.PyJWK.from_dict(public, algorithm=algorithm).key
    if algorithm != "HS256":
        return _asymmetric(kid, material)
    if len(material) < _SECRET_BYTES:
        raise ValueError("a secret that is too short")
    return Key(kid, algorithm, material)
