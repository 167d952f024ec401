"""The admission of readers: pages that may connect, pages whose cookie counts, the capacity."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Mapping

from gateway.process import measures
from gateway.process.settings import ANY_ORIGIN
from newsfabric.http.origins import is_of_host
from newsfabric.tokens.bearer import bearer


@dataclasses.dataclass(frozen=True)
class Origins:
    """The same-origin rules of one gateway. Pure.

    ``listed``: the origins whose pages may connect, in lower case, or ``ANY_ORIGIN``.
    ``cookie``: the name of the cookie that may have the token; None: no cookie does.

    SockJS's iframe page obeys the page around it, with the origin of our host: it logs in with the
    reader's cookie, and returns all that it reads. So a page that may not connect may not frame it
    either. The decision that may be questioned: without a list of origins and without a cookie
    every page may frame it. Every page may connect then, and the frame gives it no more.
    """

    listed: tuple[str, ...]
    cookie: str | None

    def allows(self, headers: Mapping[str, str]) -> bool:
        """Return whether the requesting page may connect. Programs send no origin: they may."""
        origin = headers.get("Origin")
        if origin is None or self.listed == ANY_ORIGIN or origin.lower() in self.listed:
            return True
        return is_of_host(origin, headers.get("Host"))

    def allows_page(self, headers: Mapping[str, str]) -> bool:
        """Return whether a page may connect by loading a script or a frame, without an origin."""
        return self.listed == ANY_ORIGIN or self._is_own_page(headers)

    def token_of(self, headers: Mapping[str, str]) -> str | None:
        """Return the token of an HTTP request: from ``Authorization``, or from the cookie."""
        return bearer(headers) or self.cookie_of(headers)

    def cookie_of(self, headers: Mapping[str, str]) -> str | None:
        """Return the token in the cookie; None if there is none, or if the cookie doesn't count.

        A browser sends the cookie for every page. The cookie counts for a page of our own host, or
        of an origin that is listed by name; ``*`` lists no origin.
        """
        if "Cookie" not in headers or not self.may_use_cookie(headers):
            return None
        for part in headers["Cookie"].split(";"):
            found, _, value = part.strip().partition("=")
            if found == self.cookie:
                return value
        return None

    def may_use_cookie(self, headers: Mapping[str, str]) -> bool:
        """Return whether the requesting page may send the cookie along and read the answer."""
        return self.cookie is not None and self._is_own_page(headers)

    def _is_own_page(self, headers: Mapping[str, str]) -> bool:
        origin, host = headers.get("Origin"), headers.get("Host")
        if origin is None:
            # A GET from our own origin has no Origin header, but this one: no page can forge it.
            return headers.get("Sec-Fetch-Site") == "same-origin"
        return origin.lower() in self.listed or is_of_host(origin, host)

    @property
    def may_be_framed(self) -> bool:
        """True if pages of other origins may frame ours. With a cookie only listed ones may."""
        return self.listed != ANY_ORIGIN or self.cookie is None

    @property
    def content_policy(self) -> str | None:
        """The ``Content-Security-Policy`` of pages made to be framed; None: frame them freely.

        Browsers check every enclosing page, so our own origin is always listed.
        """
        if self.listed == ANY_ORIGIN and self.cookie is None:
            # Every page may read everything here anyway.
            return None
        listed = () if self.listed == ANY_ORIGIN else self.listed
        return " ".join(("frame-ancestors 'self'", *listed))


class AdmissionDecision(enum.Enum):
    """A decision on a new reader. The values are metric labels."""

    YES = "yes"
    FULL = "capacity"
    DRAINING = "draining"
    STARTING = "starting"
    BAD_ORIGIN = "origin"
    # Its address has as many connections as it may have.
    TOO_MANY = "address"


@dataclasses.dataclass
class Admission:
    """The rule by which readers are admitted, up to ``capacity`` of them.

    ``readers`` returns the number of connected readers. ``can_serve`` returns whether the gateway
    can give readers their missed messages and a position.
    """

    origins: Origins
    capacity: int
    readers: Callable[[], int]
    can_serve: Callable[[], bool]
    #: Set for good when the gateway begins to drain: no reader is admitted any more.
    draining: bool = False

    def decide(self, headers: Mapping[str, str]) -> AdmissionDecision:
        """Return the decision on a request with these ``headers``, and count a refusal."""
        if self.draining:
            verdict = AdmissionDecision.DRAINING
        elif not self.can_serve():
            verdict = AdmissionDecision.STARTING
        elif not self.origins.allows(headers):
            verdict = AdmissionDecision.BAD_ORIGIN
        elif self.readers() >= self.capacity:
            verdict = AdmissionDecision.FULL
        else:
            return AdmissionDecision.YES
        measures.REJECTED_CONNECTS.labels(verdict.value).inc()
        return verdict
