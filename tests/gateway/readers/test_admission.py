"""The right to frame our pages, as configured for a gateway."""

from __future__ import annotations

import pytest

from gateway.process.settings import ANY_ORIGIN
from gateway.readers.admission import Origins

LISTED = ("https://a.example", "https://b.example:8443")


@pytest.mark.parametrize(
    ("origins", "cookie", "framed", "policy"),
    [
        (ANY_ORIGIN, None, True, None),
        (LISTED, None, True, "frame-ancestors 'self' https://a.example https://b.example:8443"),
        (LISTED, "s", True, "frame-ancestors 'self' https://a.example https://b.example:8443"),
        (ANY_ORIGIN, "s", False, "frame-ancestors 'self'"),
    ],
)
def test_who_may_not_connect_may_not_frame(
    origins: tuple[str, ...], cookie: str | None, framed: bool, policy: str | None
) -> None:
    rules = Origins(origins, cookie)
    assert (rules.may_be_framed, rules.content_policy) == (framed, policy)
