"""Verification of readers' tokens, JWT (RFC 7519), and the claims of a valid one. Pure.

PyJWT's algorithms check the signature; form and claims are checked here, with the time passed in
(all of PyJWT costs a quarter more, and reads the clock itself). :mod:`newsfabric.tokens.token_keys`
fetches the keys; :mod:`gateway.answers.access` decides which topics a login may read.

**The key decides the algorithm, never the token**: a key has one algorithm from the moment it is
read. A token that names another (``none`` above all, or HS256 with a public key as its secret) is
refused before anything is computed (RFC 8725 section 3.1).

A token must end some time, or a revocation would have to be remembered for ever. So ``iat`` is
required, and no token is valid for longer than ``TokenRules.longest`` after it, whatever its
``exp``. No leeway is added to that end: revocations are forgotten then, to the millisecond.
"""

from __future__ import annotations

import binascii
import dataclasses
import functools
import re
from collections.abc import Sequence
from typing import Any, Final, Literal

import jwt
import orjson

from newsfabric.errors import BadToken
from newsfabric.numbers import is_number
from newsfabric.topics import is_pattern

Algorithm = Literal["EdDSA", "RS256", "HS256"]
ALGORITHMS: Final[tuple[Algorithm, ...]] = ("EdDSA", "RS256", "HS256")

MAX_TOKEN_BYTES: Final = 8 * 1024
# Bounds of the claim ``topics``: patterns, and their total bytes (a data plane carries them).
MAX_PATTERNS: Final = 32
MAX_PATTERN_BYTES: Final = 700
# Seconds whose ms fit into a signed number of 64 bits, with room for sums: the year 10,000.
_MAX_SECONDS: Final = 253_402_300_800

REASONS: Final = (
    "too_long",
    "malformed",
    "unknown_key",
    "algorithm",
    "signature",
    "expired",
    "not_yet",
    "audience",
    "issuer",
    "claims",
    "revoked",
    "other_user",
)

_USER: Final = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
# Headers are the same in all tokens of one key.
_HEADERS: Final = 256


@dataclasses.dataclass(frozen=True, slots=True)
class Key:
    """A key that verifies tokens. ``repr`` hides it: it may be a shared secret.

    ``id`` is its ``kid``; a key with None is tried for any token.
    """

    id: str | None
    algorithm: Algorithm
    material: Any = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True, slots=True)
class KeySet:
    """The present keys."""

    keys: tuple[Key, ...] = ()

    def candidates(self, kid: str | None) -> tuple[Key, ...]:
        """Return the keys that may have signed a token with this ``kid``; few, mostly one.

        A token without a ``kid`` is tried with the only key there is, or with keys without one.
        """
        if kid is None and len(self.keys) == 1:
            return self.keys
        return tuple(key for key in self.keys if key.id is None or key.id == kid)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TokenRules:
    """The required claims of a token beside its user.

    ``audience`` must be among ``aud`` (without one, a token for any audience is refused: RFC 7519
    section 4.1.3), ``issuer`` must be ``iss``. ``leeway`` seconds are allowed for differences of
    clocks. ``longest`` seconds after its issue every token ends, without any leeway.
    """

    audience: str | None = None
    issuer: str | None = None
    leeway: float = 5.0
    longest: float = 30 * 86400.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """A reader's user, its end, and further topics that it may read: the content of a valid token.

    Times are ms since the epoch. ``expires_ms`` is sent to the reader; the connection ends at
    ``ends_ms``, when the leeway is over too. An ``operator`` may see the operations board.
    """

    user: str
    topics: tuple[str, ...] = ()
    issued_ms: int
    expires_ms: int
    ends_ms: int
    operator: bool = False


def is_user(text: str) -> bool:
    """Return whether ``text`` can be a user's id: a topic word of at most 64 characters."""
    return _USER.fullmatch(text) is not None


def verify(token: str, keys: KeySet, rules: TokenRules, now: float) -> Login:
    """Return the login of ``token`` at ``now`` (seconds since the epoch); BadToken if invalid.

    With the reason ``unknown_key`` the token may be valid for newer keys.
    """
    if len(token) > MAX_TOKEN_BYTES:
        raise BadToken("too_long", f"a token has at most {MAX_TOKEN_BYTES} bytes")
    return _login(_payload(token, keys), rules, now)


def _payload(token: str, keys: KeySet) -> Any:
    """Return the signed claims; BadToken if no key of ``keys`` signed them."""
    if _TOKEN.fullmatch(token) is None:
        raise BadToken("malformed", "not a token")
    signed, _, end = token.rpartition(".")
    header, _, claims = signed.partition(".")
    algorithm, kid = _header(header)
    candidates = keys.candidates(kid)
    # A key without an id may have been replaced by one that signed this token.
    certain = kid is not None and any(key.id == kid for key in candidates)
    fitting = [key for key in candidates if key.algorithm == algorithm]
    if not fitting and certain:
        raise BadToken("algorithm", "signed in another way than its key is for")
    data, signature = signed.encode(), _decoded(end)
    if not any(_CHECKS[key.algorithm].verify(data, key.material, signature) for key in fitting):
        if certain:
            raise BadToken("signature", "not signed by the key that it names")
        raise BadToken("unknown_key", "signed with a key that isn't known here")
    return _json(_decoded(claims))


# RFC 7515 section 7.1, section 2: three parts, base64url without padding.
_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*", re.ASCII)
_CHECKS: Final = {name: jwt.get_algorithm_by_name(name) for name in ALGORITHMS}


_TO_BASE64: Final = bytes.maketrans(b"-_", b"+/")
_FROM_BASE64: Final = bytes.maketrans(b"+/", b"-_")


def _decoded(part: str) -> bytes:
    """Return the bytes in a part. Unused bits must be 0: bytes have only one valid form."""
    text = part.encode()
    try:
        # Excess padding is ignored.
        data = binascii.a2b_base64(text.translate(_TO_BASE64) + b"==")
    except binascii.Error as exc:
        raise BadToken("malformed", "not a token") from exc
    if binascii.b2a_base64(data, newline=False).translate(_FROM_BASE64).rstrip(b"=") != text:
        raise BadToken("malformed", "not a token")
    return data


@functools.lru_cache(_HEADERS)
def _header(segment: str) -> tuple[str, str | None]:
    """Return ``alg`` and ``kid`` of a token's first part, which isn't verified yet."""
    fields = _json(_decoded(segment))
    algorithm, kid = fields.get("alg"), fields.get("kid")
    # RFC 7515 section 4.1.11: a critical header that isn't understood makes the token invalid.
    if "crit" in fields or "b64" in fields:
        raise BadToken("malformed", "a token with headers that aren't understood")
    if not isinstance(algorithm, str) or not (kid is None or isinstance(kid, str)):
        raise BadToken("malformed", "a token whose header isn't one")
    return algorithm, kid


def _json(data: bytes) -> dict[str, Any]:
    try:
        fields = orjson.loads(data)
    except orjson.JSONDecodeError as exc:
        raise BadToken("malformed", "a token that isn't JSON inside") from exc
    if not isinstance(fields, dict):
        raise BadToken("malformed", "a token without claims")
    return fields


def _login(claims: dict[str, Any], rules: TokenRules, now: float) -> Login:
    user = claims.get("sub")
    if not isinstance(user, str) or not is_user(user):
        raise BadToken("claims", "sub must be 1 to 64 letters, digits, _ or -")
    _check_audience(claims.get("aud"), rules.audience)
    if rules.issuer is not None and claims.get("iss") != rules.issuer:
        raise BadToken("issuer", "the token is another issuer's")
    issued = _seconds(claims, "iat")
    if issued is None:
        raise BadToken("claims", "the token must have the time of its issue: iat")
    begins, expires = _seconds(claims, "nbf"), _seconds(claims, "exp")
    last = issued + rules.longest
    ends = last if expires is None else min(last, expires + rules.leeway)
    if ends <= now:
        raise BadToken("expired", "the token has expired")
    if max(issued, begins or 0.0) > now + rules.leeway:
        raise BadToken("not_yet", "the token isn't valid yet")
    return Login(
        user=user,
        topics=_patterns(claims.get("topics")),
        issued_ms=int(issued * 1000),
        expires_ms=int((last if expires is None else min(last, expires)) * 1000),
        ends_ms=int(ends * 1000),
        # Only true: "false" is a text, and texts are true to Python.
        operator=claims.get("operator") is True,
    )


def _seconds(claims: dict[str, Any], name: str) -> float | None:
    """Return a NumericDate (RFC 7519 section 2); None if the claim is missing."""
    value = claims.get(name)
    if value is None:
        return None
    if not is_number(value, 0, _MAX_SECONDS):
        raise BadToken("claims", f"{name} must be seconds since the epoch")
    return float(value)


def _check_audience(claim: Any, audience: str | None) -> None:
    named: Sequence[Any] = claim if isinstance(claim, list) else [claim]
    if claim is None and audience is None:
        return
    if audience is None or audience not in named:
        raise BadToken("audience", "the token is for another audience")


def _patterns(claim: Any) -> tuple[str, ...]:
    if claim is None:
        return ()
    if not isinstance(claim, list) or len(claim) > MAX_PATTERNS:
        raise BadToken("claims", f"topics must be a list of at most {MAX_PATTERNS} patterns")
    if not all(isinstance(one, str) and is_pattern(one) for one in claim):
        raise BadToken("claims", "topics must be dotted words, * or #")
    if sum(map(len, claim)) > MAX_PATTERN_BYTES:
        raise BadToken("claims", f"topics has more than {MAX_PATTERN_BYTES} bytes")
    return tuple(claim)
