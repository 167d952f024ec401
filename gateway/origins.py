"""Which pages may connect, and whose cookie counts: the same-origin rules of one gateway. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from gateway.settings import ANY_ORIGIN
from newsfabric.bearer import bearer
from newsfabric.origins import is_of_host


class Origins:
    """``allowed``: the origins whose pages may connect, in lower case, or ``ANY_ORIGIN``.

    ``cookie``: the name of the cookie that may have the token; None: no cookie does.
    """

    def __init__(self, allowed: tuple[str, ...], cookie: str | None) -> None:
        self._allowed = allowed
        self._cookie = cookie

    def allows(self, origin: str | None, host: str | None) -> bool:
        """Whether pages of ``origin`` may connect. Programs send none."""
        if origin is None or self._allowed == ANY_ORIGIN or origin.lower() in self._allowed:
            return True
        return is_of_host(origin, host)

    def allows_page(self, headers: Mapping[str, str]) -> bool:
        """Whether a page may connect that says no origin, because it loads a script or a frame."""
        return self._allowed == ANY_ORIGIN or self._is_own_page(headers)

    def token_of(self, headers: Mapping[str, str]) -> str | None:
        """The token that comes with an HTTP request: in ``Authorization``, or in the cookie."""
        return bearer(headers) or self.cookie_of(headers)

    def cookie_of(self, headers: Mapping[str, str]) -> str | None:
        """The token in the cookie, if there may be one.

        A browser sends the cookie whichever page asks. It counts for a page of our own host, or of
        an origin that is listed by name; ``*`` lists nobody.
        """
        if "Cookie" not in headers or not self.lends_cookie(headers):
            return None
        for part in headers["Cookie"].split(";"):
            found, _, value = part.strip().partition("=")
            if found == self._cookie:
                return value
        return None

    def lends_cookie(self, headers: Mapping[str, str]) -> bool:
        """Whether the page that asks may have the cookie sent along and read the answer."""
        return self._cookie is not None and self._is_own_page(headers)

    def _is_own_page(self, headers: Mapping[str, str]) -> bool:
        origin, host = headers.get("Origin"), headers.get("Host")
        if origin is None:
            # A GET of one's own origin has none, but this, which no page can forge.
            return headers.get("Sec-Fetch-Site") == "same-origin"
        return origin.lower() in self._allowed or is_of_host(origin, host)
