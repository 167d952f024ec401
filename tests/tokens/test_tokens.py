"""Tokens: users that are let in, and each reason to refuse a token."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from signing import AUDIENCE, ISSUER, SECRET, ed25519, public_pem, rsa_key, signed, token

from gateway.answers.authenticator import Revocations
from newsfabric.errors import BadToken
from newsfabric.tokens import MAX_TOKEN_BYTES, REASONS, Key, KeySet, Login, TokenRules, verify

NOW = 1_767_225_600.0
RULES = TokenRules(audience=AUDIENCE, issuer=ISSUER)
KEYS = KeySet((Key("first", "EdDSA", ed25519().public_key()),))


def issued(user: str = "42", **claims: Any) -> str:
    return token(user, **{"issued": NOW, "kid": "first", **claims})


def refused(text: str, keys: KeySet = KEYS, rules: TokenRules = RULES, now: float = NOW) -> str:
    with pytest.raises(BadToken) as caught:
        verify(text, keys, rules, now)
    assert caught.value.reason in REASONS
    # Logs and replies mustn't hold a token that logs somebody in (a few letters are harmless).
    assert len(text) < 16 or text not in str(caught.value)
    return caught.value.reason


def test_a_good_token_says_who_until_when_and_what_else() -> None:
    login = verify(issued(topics=["desk.#", "live.*"]), KEYS, RULES, NOW + 599)
    assert login == Login(
        user="42",
        topics=("desk.#", "live.*"),
        issued_ms=int(NOW * 1000),
        expires_ms=int((NOW + 600) * 1000),
        ends_ms=int((NOW + 605) * 1000),
    )


@pytest.mark.parametrize(
    ("key", "material", "algorithm"),
    [
        (ed25519(), ed25519().public_key(), "EdDSA"),
        (rsa_key(), rsa_key().public_key(), "RS256"),
        (SECRET, SECRET, "HS256"),
    ],
)
def test_three_algorithms_are_spoken(key: Any, material: Any, algorithm: Any) -> None:
    keys = KeySet((Key(None, algorithm, material),))
    good = issued(key=key, algorithm=algorithm)
    assert verify(good, keys, RULES, NOW).user == "42"


def test_a_forged_token_is_refused() -> None:
    assert refused(issued(key=ed25519("somebody else's"))) == "signature"
    head, payload, signature = issued().split(".")
    _, other, _ = issued("43").split(".")
    assert refused(f"{head}.{other}.{signature}") == "signature"
    assert refused(f"{head}.{payload}.") == "signature"
    assert refused(f"{head}.{payload}.{signature[:-6]}") == "signature"


def test_the_token_doesnt_choose_the_algorithm() -> None:
    claims = {"sub": "42", "iat": NOW, "exp": NOW + 60, "aud": AUDIENCE, "iss": ISSUER}
    assert refused(signed(claims, algorithm="none", kid="first")) == "algorithm"
    assert refused(signed(claims, algorithm="None", key=b"x", kid="first")) == "algorithm"
    # The public key, which is no secret, used as a shared secret.
    pem = public_pem(rsa_key())
    keys = KeySet((Key("first", "RS256", rsa_key().public_key()),))
    assert refused(signed(claims, key=pem, algorithm="HS256", kid="first"), keys) == "algorithm"
    assert refused(signed(claims, key=pem, algorithm="HS256", kid="first")) == "algorithm"


def test_a_key_that_isnt_known_is_refused_as_such() -> None:
    assert refused(issued(kid="tomorrow's")) == "unknown_key"
    assert refused(issued(), KeySet()) == "unknown_key"
    two = KeySet((*KEYS.keys, Key("second", "EdDSA", ed25519("second").public_key())))
    assert refused(issued(kid=None), two) == "unknown_key"


def test_a_key_without_an_id_may_have_been_replaced_so_newer_keys_may_know_better() -> None:
    unnamed = KeySet((Key(None, "EdDSA", ed25519("first").public_key()),))
    newer = ed25519("second")
    assert refused(issued(kid=None, key=newer), unnamed) == "unknown_key"
    assert refused(issued(kid="second", key=newer), unnamed) == "unknown_key"
    assert refused(issued(kid=None, key=rsa_key(), algorithm="RS256"), unnamed) == "unknown_key"
    assert refused(issued(kid=None, key=newer)) == "unknown_key"


def test_a_token_without_a_key_id_is_checked_with_the_only_key_or_with_those_without_one() -> None:
    assert verify(issued(kid=None), KEYS, RULES, NOW).user == "42"
    unnamed = KeySet(
        (
            Key("first", "EdDSA", ed25519("first").public_key()),
            Key(None, "RS256", rsa_key().public_key()),
            Key(None, "EdDSA", ed25519("second").public_key()),
        )
    )
    assert verify(issued(kid=None, key=ed25519("second")), unnamed, RULES, NOW).user == "42"
    assert refused(issued(kid=None, key=ed25519("first")), unnamed) == "unknown_key"


def test_a_token_ends_and_begins_with_some_leeway() -> None:
    assert verify(issued(), KEYS, RULES, NOW + 604.9).user == "42"
    assert refused(issued(), now=NOW + 605) == "expired"
    assert verify(issued(nbf=NOW + 4), KEYS, RULES, NOW).user == "42"
    assert refused(issued(nbf=NOW + 6)) == "not_yet"
    assert refused(issued(iat=NOW + 6)) == "not_yet"


def test_no_token_is_good_for_longer_than_revocations_are_remembered() -> None:
    rules = TokenRules(audience=AUDIENCE, issuer=ISSUER, longest=3600.0)
    for ttl in (86400.0, 3600.0, None):
        login = verify(issued(ttl=ttl), KEYS, rules, NOW + 3599.9)
        assert (login.expires_ms, login.ends_ms) == (int((NOW + 3600) * 1000),) * 2
        # Even the leeway doesn't apply: revocations are forgotten now.
        assert refused(issued(ttl=ttl), rules=rules, now=NOW + 3600) == "expired"


@pytest.mark.parametrize("ttl", [60.0, 10 * 365 * 86400.0, None])
def test_a_token_that_doesnt_say_when_it_was_issued_is_refused(ttl: float | None) -> None:
    assert refused(issued(ttl=ttl, iat=None)) == "claims"


@given(st.floats(0.0, 7_200.0), st.floats(0.0, 7_200.0) | st.none(), st.floats(0.0, 7_200.0))
def test_a_revoked_token_has_ended_when_its_revocation_is_forgotten(
    age: float, ttl: float | None, later: float
) -> None:
    rules = TokenRules(audience=AUDIENCE, issuer=ISSUER, longest=3600.0)
    revoked = Revocations(rules.longest)
    revoked_ms, now = int(NOW * 1000), NOW + later
    revoked.add("42", revoked_ms, now_ms=revoked_ms, now=0.0)
    # Time passes: the next revocation makes it forget old ones.
    revoked.add("7", int(now * 1000), now_ms=int(now * 1000), now=later)
    try:
        login = verify(issued(iat=NOW - age, ttl=ttl), KEYS, rules, now)
    except BadToken:
        return
    assert revoked.revokes(login)


@pytest.mark.parametrize("audience", ["others", None, [], ["others"], 7, {"readers": 1}])
def test_a_token_for_another_audience_is_refused(audience: Any) -> None:
    assert refused(issued(aud=audience)) == "audience"


def test_one_of_several_audiences_is_enough() -> None:
    assert verify(issued(aud=["others", AUDIENCE]), KEYS, RULES, NOW).user == "42"


def test_without_an_audience_of_ours_only_tokens_for_nobody_in_particular_are_good() -> None:
    rules = TokenRules()
    assert refused(issued(), rules=rules) == "audience"
    assert verify(issued(aud=None), KEYS, rules, NOW).user == "42"


@pytest.mark.parametrize("issuer", ["https://evil.example.org", None, 7, [ISSUER]])
def test_another_issuers_token_is_refused(issuer: Any) -> None:
    assert refused(issued(iss=issuer)) == "issuer"


@pytest.mark.parametrize(
    "claims",
    [
        {"sub": ""},
        {"sub": None},
        {"sub": 42},
        {"sub": "*"},
        {"sub": "#"},
        {"sub": "42.43"},
        {"sub": "4 2"},
        {"sub": "42\n"},
        {"sub": "４２"},
        {"sub": "x" * 65},
        {"exp": "soon"},
        {"exp": True},
        {"exp": -1},
        {"exp": 1e300},
        {"iat": []},
        {"iat": "now"},
        {"iat": True},
        {"iat": -1},
        {"iat": 1e300},
        {"nbf": {}},
        {"topics": "desk.#"},
        {"topics": [7]},
        {"topics": ["desk..x"]},
        {"topics": ["desk.#"] * 33},
        {"topics": ["x" * 250] * 3},
    ],
)
def test_claims_that_are_nonsense_are_refused(claims: dict[str, Any]) -> None:
    assert refused(issued(**claims)) == "claims"


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "..",
        "...",
        "x",
        "x.y.z",
        "{}.{}.{}",
        "e30.e30.e30",
        "\u00e9.e30.",
        "\0",
        signed([1, 2], kid="first"),
        signed(b"{", kid="first"),
        signed(b"\xff", kid="first"),
        signed({"sub": "42"}, kid="first", crit=["exp"]),
        signed({"sub": "42"}, kid="first", b64=False),
        signed({"sub": "42"}, kid=7),  # type: ignore[arg-type]
        issued() + "\n",
        issued() + " ",
        issued()[:-1] + "!",
        issued() + ".x",
    ],
)
def test_what_is_no_token_is_malformed(text: str) -> None:
    assert refused(text) == "malformed"


def test_an_oversized_token_is_refused_before_anything_is_computed() -> None:
    assert refused(issued(padding="x" * MAX_TOKEN_BYTES)) == "too_long"
    assert refused("x" * (MAX_TOKEN_BYTES + 1)) == "too_long"


@given(st.text() | st.binary().map(lambda data: data.decode("latin-1")))
def test_whatever_it_is_it_is_a_login_or_a_bad_token(text: str) -> None:
    refused(text)


@given(st.integers(0, 10_000), st.integers(1, 255))
def test_no_changed_byte_is_let_in(at: int, change: int) -> None:
    good = issued().encode()
    at %= len(good)
    changed = bytearray(good)
    changed[at] ^= change
    text = changed.decode("latin-1")
    if text.rstrip("=") != good.decode():
        refused(text)


def test_a_key_and_what_holds_it_dont_show_it() -> None:
    key = Key(None, "HS256", SECRET)
    assert SECRET.decode() not in repr(KeySet((key,)))
