"""Keys read from files and key sets."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from signing import SECRET, ed25519, elliptic, jwk, jwks, private_pem, public_pem, rsa_key

from newsfabric.tokens._jwks import MAX_KEYS, parse_keys


def read(data: bytes, *, secrets: bool = True) -> list[tuple[str | None, str]]:
    return [(key.id, key.algorithm) for key in parse_keys(data, secrets=secrets).keys]


def test_public_keys_in_pem_are_read_each_for_its_algorithm() -> None:
    data = b"first\n" + public_pem(ed25519()) + public_pem(rsa_key())
    assert read(data) == [(None, "EdDSA"), (None, "RS256")]


def test_a_key_set_is_read_with_its_ids() -> None:
    data = jwks(jwk(ed25519(), "a", alg="EdDSA", use="sig"), jwk(rsa_key(), "b"), jwk(SECRET, "c"))
    assert read(data) == [("a", "EdDSA"), ("b", "RS256"), ("c", "HS256")]


def test_a_shared_secret_counts_in_a_file_alone() -> None:
    data = jwks(jwk(ed25519(), "a"), jwk(SECRET, "c"))
    assert read(data, secrets=False) == [("a", "EdDSA")]


@pytest.mark.parametrize(
    "entry",
    [
        jwk(elliptic(), "x"),
        jwk(ed25519(), "x", use="enc"),
        jwk(ed25519(), "x", alg="RS256"),
        jwk(rsa_key(), "x", alg="RS512"),
        jwk(rsa_key(), "x", alg="none"),
        jwk(rsa_key(1024), "x"),
        jwk(b"short", "x"),
        jwk(ed25519(), 7),  # type: ignore[arg-type]
        {"kty": "OKP", "crv": "Ed25519", "x": "!"},
        {"kty": "RSA"},
        {"kty": ["RSA"]},
        {},
        7,
        None,
    ],
)
def test_keys_that_arent_for_us_are_passed_over(entry: Any) -> None:
    assert read(jwks(entry, jwk(ed25519(), "a"))) == [("a", "EdDSA")]
    with pytest.raises(ValueError, match="no key"):
        read(jwks(entry))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "neither"),
        (b"hello", "neither"),
        (b"{", "not JSON"),
        (b"{}", "a key set is"),
        (b'{"keys": {}}', "a key set is"),
        (b'{"keys": []}', "no key"),
        (private_pem(ed25519()), "only public keys"),
        (public_pem(elliptic()), "none of ours"),
        (public_pem(rsa_key(1024)), "1024 bits"),
        (b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", "none of ours"),
    ],
)
def test_what_holds_no_key_of_ours_is_an_error_that_says_why(data: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read(data)


def test_of_an_endless_key_set_only_the_first_are_read() -> None:
    assert len(read(jwks(*[jwk(ed25519(), str(n)) for n in range(MAX_KEYS + 9)]))) == MAX_KEYS


def test_of_a_private_key_in_a_set_only_the_public_half_is_kept() -> None:
    entry = jwk(ed25519(), "a", d="AAAA")
    (key,) = parse_keys(jwks(entry), secrets=True).keys
    assert key.material == ed25519().public_key()


values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["kty", "k", "x", "n", "e", "crv", "kid", "alg"]), inner)
    ),
    max_leaves=8,
)


@given(st.binary() | values.map(lambda v: json.dumps({"keys": [v]}).encode()))
def test_garbage_is_a_value_error_and_nothing_else(data: bytes) -> None:
    with contextlib.suppress(ValueError):
        parse_keys(data, secrets=True)
