"""``newsfabric operator-token``: a deployment gives operators their logins."""

from __future__ import annotations

import stat
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from newsfabric.errors import BadToken
from newsfabric.tokens import TokenRules, verify
from newsfabric.tokens._jwks import parse_keys
from newsfabric.tokens.operator_tokens import LONGEST_S, public_of
from operations.cli import cli

RULES = TokenRules(longest=LONGEST_S)


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "operators.pem"
    assert run("ada", "--key", str(path), "--make-key").exit_code == 0
    return path


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, ["operator-token", *words])


def test_a_frontdesk_that_is_given_the_public_key_lets_the_operator_in(key: Path) -> None:
    keys = parse_keys(public_of(key).read_bytes(), secrets=False)
    done = run("ada", "--key", str(key), "--ttl", "1h")
    login = verify(done.stdout.strip(), keys, RULES, time.time())
    assert (login.user, login.operator) == ("ada", True)
    assert login.expires_ms - login.issued_ms == pytest.approx(3_600_000, abs=2)


def test_audience_and_issuer_are_those_that_frontdesks_ask_for(key: Path) -> None:
    keys = parse_keys(public_of(key).read_bytes(), secrets=False)
    rules = TokenRules(audience="board", issuer="deploy", longest=LONGEST_S)
    output = run(
        "ada", "--key", str(key), "--audience", "board", "--issuer", "deploy"
    ).stdout.strip()
    assert verify(output, keys, rules, time.time()).user == "ada"
    with pytest.raises(BadToken):
        verify(run("ada", "--key", str(key)).stdout.strip(), keys, rules, time.time())


def test_a_key_is_its_owners_alone_and_never_overwritten(key: Path) -> None:
    before = key.read_text()
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    again = run("ada", "--key", str(key), "--make-key")
    assert (again.exit_code, key.read_text()) == (1, before)
    assert "is there already" in again.stderr


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["ada", "--ttl", "25h"], "no token that is good for more than a day"),
        (["ada", "--ttl", "soon"], "soon"),
        (["a.b"], "no user's id"),
    ],
)
def test_what_no_frontdesk_would_take_is_refused(key: Path, words: list[str], why: str) -> None:
    done = run(*words, "--key", str(key))
    assert done.exit_code != 0
    assert why in done.stderr


def test_what_is_no_key_is_reported(key: Path, tmp_path: Path) -> None:
    assert "can't read the key" in run("ada", "--key", str(tmp_path / "none")).stderr
    assert "has no private key" in run("ada", "--key", str(public_of(key))).stderr
