"""The right to publish over HTTP."""

from __future__ import annotations

from pathlib import Path

import pytest
from tornado.httputil import HTTPHeaders

from newsfabric.errors import ConfigError
from wholesale.frontdesk.api.access import ANYONE, ApiKey, PublishAccess, check_exposure, read_keys

KEY = "correct horse battery"


def test_without_a_key_everyone_may():
    assert PublishAccess().caller(HTTPHeaders()) is ANYONE


@pytest.mark.parametrize(
    ("headers", "allowed"),
    [
        ({"X-API-Key": KEY}, True),
        ({"Authorization": f"Bearer {KEY}"}, True),
        ({"Authorization": f"bearer {KEY}"}, True),
        ({"X-API-Key": KEY + "x"}, False),
        ({"X-API-Key": ""}, False),
        ({"X-API-Key": "schlüssel"}, False),
        ({"Authorization": KEY}, False),
        ({"Authorization": f"Basic {KEY}"}, False),
        ({}, False),
    ],
)
def test_with_a_key_only_its_holder_may(headers: dict[str, str], allowed: bool):
    caller = PublishAccess((ApiKey(KEY),)).caller(HTTPHeaders(headers))
    assert (caller is not None) is allowed


def test_a_key_says_who_calls():
    keys = (ApiKey(KEY, "cms"), ApiKey("another long secret", "sport"))
    access = PublishAccess(keys)
    assert access.caller(HTTPHeaders({"X-API-Key": "another long secret"})) == keys[1]
    assert access.caller(HTTPHeaders({"Authorization": f"Bearer {KEY}"})) == keys[0]


def test_the_key_isnt_in_the_repr():
    assert KEY not in repr(PublishAccess((ApiKey(KEY),)))


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("correct-horse-battery\n", (ApiKey("correct-horse-battery"),)),
        ("cms correct-horse-battery", (ApiKey("correct-horse-battery", "cms"),)),
        (
            "# who may\n\ncms   correct-horse-battery\n  sport another-long-secret",
            (ApiKey("correct-horse-battery", "cms"), ApiKey("another-long-secret", "sport")),
        ),
    ],
)
def test_keys_come_from_a_file(tmp_path: Path, text: str, keys: tuple[ApiKey, ...]):
    file = tmp_path / "key"
    file.write_text(text, encoding="utf-8")
    assert read_keys(file) == keys


def test_without_a_file_there_are_none():
    assert read_keys(None) == ()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("abc", "line 1: a key needs at least 16"),
        ("cms abc", "line 1: a key needs at least 16"),
        ("correct-horse-battery\ncms my correct-horse-battery", "line 2: write KEY, or APP_ID KEY"),
        ("# nothing", "needs a key"),
    ],
)
def test_a_bad_file_is_one_clear_line(tmp_path: Path, text: str, words: str):
    file = tmp_path / "keys"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=words) as caught:
        read_keys(file)
    assert "correct" not in str(caught.value)


def test_a_missing_file_is_one_clear_line(tmp_path: Path):
    with pytest.raises(ConfigError, match="--api-key-file"):
        read_keys(tmp_path / "none")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_on_loopback_no_key_is_needed(host: str):
    check_exposure(host, ())


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.0.2.1", "news.example"])
def test_elsewhere_it_is(host: str):
    with pytest.raises(ConfigError, match="--api-key-file"):
        check_exposure(host, ())
    check_exposure(host, [ApiKey(KEY)])
