"""HTTP for operators' programs: health, metrics, and requests that control a process.

Not for readers, and not for web pages: a browser on a machine that reaches such a port must not act
there for a page. A page's request has the page's origin. A page whose host name was changed to our
address (DNS rebinding) sends that host name.

The decision that a reader may question: host names are refused unless they were listed, for GET as
well. Scrapers use addresses or a few names, and a rule without exceptions is easy to remember.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Any, Final

import click
import tornado.httputil
import tornado.web

from newsfabric.http.origins import is_of_host
from newsfabric.process.service import PlainHandler

#: The option of every process with such a port.
admin_host_option = click.option(
    "--admin-host",
    "admin_hosts",
    multiple=True,
    metavar="NAME",
    envvar="NEWSFABRIC_ADMIN_HOST",
    show_envvar=True,
    help="A host name that operators' programs may ask by, beside addresses and localhost; repeat.",
)
_LOCAL: Final = "localhost"


def refusal(host: str | None, origin: str | None, names: Sequence[str]) -> str | None:
    """Return why a request to ``host`` from a page of ``origin`` is refused; None if it isn't.

    Programs send no origin. Very old ones send no host; browsers always do.
    """
    if host is not None and not _is_known(_without_port(host.lower()), names):
        return "ask by an address, by localhost or by a name given with --admin-host"
    if origin is not None and not is_of_host(origin, host):
        return "not for web pages"
    return None


class OperatorsApplication(tornado.web.Application):
    """An application of ``routes``, for operators' programs alone. Requests aren't logged."""

    def __init__(self, routes: list[Any], *, names: Sequence[str] = (), **settings: Any) -> None:
        super().__init__(routes, log_function=lambda _handler: None, **settings)
        self._names = tuple(name.lower() for name in names)

    def find_handler(self, request: tornado.httputil.HTTPServerRequest, **kwargs: Any) -> Any:
        """Return the handler of ``request``'s route, or one that refuses requests of pages."""
        headers = request.headers
        why = refusal(headers.get("Host"), headers.get("Origin"), self._names)
        if why is None:
            return super().find_handler(request, **kwargs)
        return self.get_handler_delegate(request, _Refusing, {"why": why})


class _Refusing(PlainHandler):
    def initialize(self, why: str) -> None:
        self._why = why

    def prepare(self) -> None:
        self.set_status(403)
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.finish(f"{self._why}\n")


def _is_known(name: str, names: Sequence[str]) -> bool:
    if name == _LOCAL or name in names:
        return True
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() else host
