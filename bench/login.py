"""The processor time that a gateway needs to verify a reader's identity.

A crowd connects to a native gateway and logs in, all with EdDSA tokens, beside a crowd that only
connects; the difference is the cost of a login, in both processes together. The floor is the
signature's arithmetic alone: no check of the signature can be quicker.

For other parts that need logged-in readers: :class:`Issuer`.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import ClassVar, Final

import jwt
import orjson
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from bench.box import running_box
from bench.connect import spent
from bench.rows import BenchRow
from newsfabric.errors import SetupError
from newsfabric.tokens import Key, KeySet, TokenRules, verify

READERS: Final = 10_000
TIMES: Final = 3
CHECKS: Final = 10_000


class Issuer:
    """Issues tokens that gateways started with :meth:`options` accept."""

    AUDIENCE: ClassVar = "bench"

    def __init__(self) -> None:
        self._key = Ed25519PrivateKey.generate()
        self.rules = TokenRules(audience=self.AUDIENCE)

    @property
    def keys(self) -> KeySet:
        """The public key that verifies its tokens."""
        return KeySet((Key("bench", "EdDSA", self._key.public_key()),))

    def options(self, folder: Path) -> list[str]:
        """Return the gateway's options; the key is written into ``folder``."""
        return ["--token-keys", str(self.write_keys(folder)), "--token-audience", self.AUDIENCE]

    def write_keys(self, folder: Path) -> Path:
        """Write the public key into ``folder``; return the file."""
        path = folder / "keys.pem"
        pem = self._key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        path.write_bytes(pem)
        return path

    def token(self, user: str) -> str:
        """Return a token of ``user``, valid for an hour."""
        now = int(time.time())
        claims = {"sub": user, "iat": now, "exp": now + 3600, "aud": self.AUDIENCE}
        return jwt.encode(claims, self._key, algorithm="EdDSA", headers={"kid": "bench"})

    def verb(self, user: str) -> str:
        """Return the verb that logs a reader in."""
        return orjson.dumps({"action": "login", "token": self.token(user)}).decode()

    def signature(self, user: str) -> tuple[bytes, bytes]:
        """Return the signed part of a token of ``user``, and its signature."""
        data = self.token(user).rpartition(".")[0].encode()
        return data, self._key.sign(data)

    def arithmetic(self, data: bytes, signature: bytes) -> None:
        """Check a signature, and do nothing else."""
        self._key.public_key().verify(signature, data)


async def measure() -> list[BenchRow]:
    """Measure logins per second and core: the check alone, and through a gateway."""
    issuer = Issuer()
    floor, checked = _floor(issuer), _checked(issuer)
    plain, logged_in = [], []
    with tempfile.TemporaryDirectory(prefix="newsfabric-bench-") as folder:
        async with running_box("native", options=issuer.options(Path(folder))) as box:
            for _ in range(TIMES):
                plain.append(await spent(box, "", readers=READERS))
                logged_in.append(await spent(box, issuer.verb("42"), readers=READERS))
            if box.gateway.metric('newsfabric_gateway_tokens_total{outcome="good"}') < READERS:
                raise SetupError("the logins were refused")
    login = statistics.median(logged_in) - statistics.median(plain)
    return [
        BenchRow("an EdDSA signature's arithmetic", 1 / floor, "/s", digits=0),
        BenchRow(
            "tokens checked a second and core",
            1 / checked,
            "/s",
            digits=0,
            at_least=5_000,
            floor=1 / floor,
        ),
        BenchRow(
            "logins answered a second and core, native gateway",
            1 / login,
            "/s",
            digits=0,
            at_least=5_000,
            floor=1 / floor,
        ),
    ]


def _floor(issuer: Issuer) -> float:
    signed = issuer.signature("42")
    began = time.process_time()
    for _ in range(CHECKS):
        issuer.arithmetic(*signed)
    return (time.process_time() - began) / CHECKS


def _checked(issuer: Issuer) -> float:
    token, keys, rules, now = issuer.token("42"), issuer.keys, issuer.rules, time.time()
    began = time.process_time()
    for _ in range(CHECKS):
        verify(token, keys, rules, now)
    return (time.process_time() - began) / CHECKS
