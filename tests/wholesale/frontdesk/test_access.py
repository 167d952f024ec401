"""Who may publish over HTTP."""

from __future__ import annotations

from pathlib import Path

import pytest
from tornado.httputil import HTTPHeaders

from newsfabric.errors import ConfigError
from wholesale.frontdesk.access import PublishAccess, check_exposure, read_key

KEY = "correct horse battery"


def test_without_a_key_everyone_may():
    assert PublishAccess().allows(HTTPHeaders())


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
    assert PublishAccess(KEY).allows(HTTPHeaders(headers)) is allowed


def test_the_key_isnt_in_the_repr():
    assert KEY not in repr(PublishAccess(KEY))


def test_a_key_comes_from_a_file(tmp_path: Path):
    file = tmp_path / "key"
    file.write_text(f"{KEY}\n", encoding="utf-8")
    assert read_key(file) == KEY
    assert read_key(None) is None


def test_a_missing_or_short_key_is_one_clear_line(tmp_path: Path):
    with pytest.raises(ConfigError, match="--api-key-file"):
        read_key(tmp_path / "none")
    file = tmp_path / "short"
    file.write_text("abc", encoding="utf-8")
    with pytest.raises(ConfigError, match="at least 16"):
        read_key(file)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_on_loopback_no_key_is_needed(host: str):
    check_exposure(host, None)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.0.2.1", "news.example"])
def test_elsewhere_it_is(host: str):
    with pytest.raises(ConfigError, match="--api-key-file"):
        check_exposure(host, None)
    check_exposure(host, KEY)
