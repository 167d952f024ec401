"""A world's own tokens."""

from __future__ import annotations

import stat
import time
from pathlib import Path

import pytest

from localfabric.world.issuer import issue, make_keys
from localfabric.world.layout import READERS_AUDIENCE, READERS_ISSUER
from localfabric.world.paths import Paths
from newsfabric.errors import BadToken, WorldError
from newsfabric.tokens import TokenRules, verify
from newsfabric.tokens._jwks import parse_keys

RULES = TokenRules(audience=READERS_AUDIENCE, issuer=READERS_ISSUER)


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    found = Paths(state=tmp_path)
    make_keys(found)
    return found


def test_its_tokens_are_taken_by_gateways_that_are_given_its_keys(paths: Paths) -> None:
    keys = parse_keys(paths.token_keys.read_bytes(), secrets=False)
    login = verify(issue(paths, "42", ["desk.#"], 60.0), keys, RULES, time.time())
    assert (login.user, login.topics) == ("42", ("desk.#",))
    assert login.expires_ms - login.issued_ms == pytest.approx(60_000, abs=2)
    with pytest.raises(BadToken, match="expired"):
        verify(issue(paths, "42", [], 60.0), keys, RULES, time.time() + 70)


def test_only_an_operators_token_says_so(paths: Paths) -> None:
    keys = parse_keys(paths.token_keys.read_bytes(), secrets=False)
    for operator in (True, False):
        token = issue(paths, "42", [], 60.0, operator=operator)
        assert verify(token, keys, RULES, time.time()).operator is operator


def test_another_world_has_another_key(paths: Paths, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = Paths(state=tmp_path / "other")
    make_keys(other)
    keys = parse_keys(other.token_keys.read_bytes(), secrets=False)
    with pytest.raises(BadToken, match="a key that isn't known"):
        verify(issue(paths, "42", [], 60.0), keys, RULES, time.time())


def test_its_keys_are_its_owners_alone(paths: Paths) -> None:
    for path in (paths.token_key, paths.token_keys):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("user", "topics"),
    [("", []), ("a.b", []), ("42", ["a..b"]), ("42", ["a"] * 33), ("42", ["x" * 250] * 3)],
)
def test_what_no_gateway_would_take_isnt_issued(paths: Paths, user: str, topics: list[str]) -> None:
    with pytest.raises(WorldError):
        issue(paths, user, topics, 60.0)


def test_a_world_without_a_key_says_so(tmp_path: Path) -> None:
    with pytest.raises(WorldError, match="no key"):
        issue(Paths(state=tmp_path), "42", [], 60.0)
