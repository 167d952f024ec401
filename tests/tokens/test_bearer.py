"""Tokens in requests and in files."""

from __future__ import annotations

from pathlib import Path

import pytest
from tornado.httputil import HTTPHeaders

from newsfabric.errors import ConfigError
from newsfabric.tokens import MAX_TOKEN_BYTES
from newsfabric.tokens.bearer import bearer, bearing, check_private, is_private, read_token


@pytest.mark.parametrize(
    ("header", "token"),
    [
        ("Bearer a.b.c", "a.b.c"),
        ("bearer  a.b.c ", "a.b.c"),
        ("Basic YTpi", None),
        ("Bearer", ""),
        ("a.b.c", None),
        ("", None),
    ],
)
def test_a_token_is_what_follows_the_word_bearer(header: str, token: str | None) -> None:
    assert bearer(HTTPHeaders({"Authorization": header})) == token


def test_a_request_without_the_header_bears_no_token() -> None:
    assert bearer(HTTPHeaders()) is None


def test_what_bears_a_token_is_read_back() -> None:
    assert bearer(bearing("a.b.c")) == "a.b.c"
    assert bearing(None) == {}


def test_a_file_holds_one_token_on_one_line(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_bytes(b" a.b.c\n")
    assert read_token(path) == "a.b.c"


@pytest.mark.parametrize(
    "content",
    [b"", b"\n", b"a.b.c\nX-Other: 1", b"a b", b"caf\xe9", b"a\x00b", b"x" * (MAX_TOKEN_BYTES + 1)],
)
def test_a_file_with_anything_else_is_refused_by_its_name(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "token"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="holds no token"):
        read_token(path)


@pytest.mark.parametrize(
    "url",
    ["https://oregon.example.com", "http://127.0.0.1:18100", "http://[::1]", "http://localhost:1"],
)
def test_nobody_reads_what_goes_over_https_or_stays_on_this_machine(url: str) -> None:
    assert is_private(url)
    check_private([url])


@pytest.mark.parametrize(
    "url", ["http://oregon.example.com", "http://10.0.0.7:18100", "http://localhost.example.com"]
)
def test_a_token_is_not_sent_over_plain_http_to_another_machine(url: str) -> None:
    assert not is_private(url)
    with pytest.raises(ConfigError, match=f"^{url}: a token is sent over https, .*"):
        check_private(["https://dublin.example.com", url])
