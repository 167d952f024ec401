"""Who may come in: which pages may connect, whose cookie counts, whether there is room."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Mapping

from gateway import measures
from gateway.settings import ANY_ORIGIN
from newsfabric.http.origins import is_of_host
from newsfabric.tokens.bearer import bearer


@dataclasses.dataclass(frozen=True)
class Origins:
    """The same-origin rules of one gateway. Pure.

    ``listed``: the origins whose pages may connect, in lower case, or ``ANY_ORIGIN``.
    ``cookie``: the name of the cookie that may have the token; None: no cookie does.

    SockJS's iframe page does what the page around it says, in our own host's name: it logs in with
    the reader's cookie, and hands back what it reads. So who may not connect may not frame it
    either. The decision that one would question: without a list of origins and without a cookie
    anybody may. Every page may connect then, and in our name it gets no more than in its own.
    """

    listed: tuple[str, ...]
    cookie: str | None

    def allows(self, headers: Mapping[str, str]) -> bool:
        """Whether the page that asks may connect. Programs say no origin."""
        origin = headers.get("Origin")
        if origin is None or self.listed == ANY_ORIGIN or origin.lower() in self.listed:
            return True
        return is_of_host(origin, headers.get("Host"))

    def allows_page(self, headers: Mapping[str, str]) -> bool:
        """Whether a page may connect that says no origin, because it loads a script or a frame."""
        return self.listed == ANY_ORIGIN or self._is_own_page(headers)

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
            if found == self.cookie:
                return value
        return None

    def lends_cookie(self, headers: Mapping[str, str]) -> bool:
        """Whether the page that asks may have the cookie sent along and read the answer."""
        return self.cookie is not None and self._is_own_page(headers)

    def _is_own_page(self, headers: Mapping[str, str]) -> bool:
        origin, host = headers.get("Origin"), headers.get("Host")
        if origin is None:
            # A GET of one's own origin has none, but this, which no page can forge.
            return headers.get("Sec-Fetch-Site") == "same-origin"
        return origin.lower() in self.listed or is_of_host(origin, host)

    @property
    def may_be_framed(self) -> bool:
        """Whether pages of other origins may frame ours. With a cookie only those listed may."""
        return self.listed != ANY_ORIGIN or self.cookie is None

    @property
    def content_policy(self) -> str | None:
        """The ``Content-Security-Policy`` of pages made to be framed; None: frame them freely.

        All pages around are checked, so our own is always among them.
        """
        if self.listed == ANY_ORIGIN and self.cookie is None:
            # There is nothing here that not every page may have.
            return None
        listed = () if self.listed == ANY_ORIGIN else self.listed
        return " ".join(("frame-ancestors 'self'", *listed))


class Welcome(enum.Enum):
    """Whether a new reader may come in. The values are metric labels."""

    YES = "yes"
    FULL = "capacity"
    DRAINING = "draining"
    STARTING = "starting"
    BAD_ORIGIN = "origin"
    # There are as many of its address as may be.
    TOO_MANY = "address"


@dataclasses.dataclass
class Admission:
    """Lets readers in, up to ``capacity`` of them.

    ``readers`` counts those who are here; ``can_serve`` says whether a reader can be told what it
    has missed, and be given a position.
    """

    origins: Origins
    capacity: int
    readers: Callable[[], int]
    can_serve: Callable[[], bool]
    #: Set for good when the gateway begins to drain: nobody comes in any more.
    draining: bool = False

    def ask(self, headers: Mapping[str, str]) -> Welcome:
        """Whether a reader whose request has these may come in now. Refusals are counted."""
        if self.draining:
            verdict = Welcome.DRAINING
        elif not self.can_serve():
            verdict = Welcome.STARTING
        elif not self.origins.allows(headers):
            verdict = Welcome.BAD_ORIGIN
        elif self.readers() >= self.capacity:
            verdict = Welcome.FULL
        else:
            return Welcome.YES
        measures.REJECTED_CONNECTS.labels(verdict.value).inc()
        return verdict
