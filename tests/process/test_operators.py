"""Access to an operators' port."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from newsfabric.http.origins import is_of_host, is_origin
from newsfabric.process.operators import refusal


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "127.0.0.1:8081", "10.1.2.3:80", "localhost", "LOCALHOST:1", "[::1]:8081",
     "[2001:db8::7]", "router-1.internal:15081", None],
)  # fmt: skip
def test_programs_ask_by_an_address_by_localhost_or_by_a_listed_name(host: str | None) -> None:
    assert refusal(host, None, ("router-1.internal",)) is None


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8081", "localhost.evil.example", "127.0.0.1.evil.example",
     "localhost.", "", ":8081", "[::1", "127.1", "router-1.internal.evil.example"],
)  # fmt: skip
def test_a_name_that_was_made_to_mean_our_address_is_refused(host: str) -> None:
    assert refusal(host, None, ("router-1.internal",)) is not None
    assert refusal(host, f"http://{host}", ("router-1.internal",)) is not None


def test_pages_of_other_origins_are_refused() -> None:
    for origin in ("http://evil.example", "null", "", "http://127.0.0.1:9000", "http://["):
        assert refusal("127.0.0.1:8081", origin, ()) == "not for web pages"
    assert refusal("127.0.0.1:8081", "http://127.0.0.1:8081", ()) is None


@given(st.text(), st.text(), st.one_of(st.none(), st.text()))
def test_whatever_a_request_says_is_judged_without_an_error(
    host: str, a: str, b: str | None
) -> None:
    refusal(host, b, (a,))
    assert not is_of_host(a, "")
    assert is_origin(a) in (True, False)


def test_origins_are_a_scheme_a_host_and_perhaps_a_port() -> None:
    for good in ("https://a.example", "http://127.0.0.1:8080", "http://[::1]:80"):
        assert is_origin(good)
    for bad in (
        "null",
        "*",
        "",
        "https://a.example/",
        "a.example",
        "https://a.example;x",
        "http://",
    ):
        assert not is_origin(bad)
