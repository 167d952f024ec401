"""HTTP handlers that all services share: JSON replies, also for errors."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

import orjson
import tornado.web
from tornado.httputil import HTTPServerRequest

from newsfabric.http.networks import Network, asker
from newsfabric.http.pace import Rate, RateLimit
from newsfabric.messages.envelope import JSON
from newsfabric.process.service import PlainHandler

# For errors that pass by themselves.
RETRY: Final = {"Retry-After": "1"}


class HttpProblem(Exception):
    """A request that is answered with ``status``, ``headers`` and a JSON error.

    ``reason`` is one word for programs, ``detail`` a line for people; ``extra`` adds fields to
    them.
    """

    def __init__(
        self,
        status: int,
        reason: str,
        detail: str,
        *,
        headers: Mapping[str, str] | None = None,
        extra: Mapping[str, str | None] | None = None,
    ) -> None:
        super().__init__(f"{status} {reason}: {detail}")
        self.status = status
        self.reason = reason
        self.headers = dict(headers or {})
        self.document = {"error": {"reason": reason, "detail": detail, **(extra or {})}}


class ClientRateLimit:
    """A rate limit for each client address; ``balancers`` are trusted to name that address."""

    def __init__(self, rate: Rate, balancers: Sequence[Network]) -> None:
        self._pace, self._balancers = RateLimit(rate), balancers

    def check_rate(self, request: HTTPServerRequest) -> None:
        """Raise a 429 problem for an address that has sent too many requests."""
        forwarded = ",".join(request.headers.get_list("X-Forwarded-For"))
        who = asker(request.remote_ip or "", forwarded, self._balancers)
        wait = self._pace.seconds_to_wait(who, time.monotonic())
        if wait:
            raise HttpProblem(
                429,
                "too_many_requests",
                "this address has asked too often",
                headers={"Retry-After": str(math.ceil(wait))},
            )


class JsonHandler(PlainHandler):
    """A handler that replies in JSON, to errors too."""

    def write_document(self, document: dict[str, Any], status: int = 200) -> None:
        """Finish the request with ``document`` as JSON, and this ``status``."""
        self.set_status(status)
        self.set_header("Content-Type", JSON)
        self.finish(orjson.dumps(document))

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Reply ``{"error": {"reason": …, "detail": …}}`` to any error. Called by Tornado."""
        self.set_allow_header(status_code)
        problem = kwargs.get("exc_info", (None, None))[1]
        if not isinstance(problem, HttpProblem):
            phrase = HTTPStatus(status_code).phrase
            problem = HttpProblem(status_code, phrase.lower().replace(" ", "_"), phrase)
        for name, value in problem.headers.items():
            self.set_header(name, value)
        self.write_document(problem.document, problem.status)

    def send_error(self, status_code: int = 500, **kwargs: Any) -> None:
        """Reply with the status of a :class:`HttpProblem`, for which Tornado passes 500."""
        problem = kwargs.get("exc_info", (None, None))[1]
        super().send_error(
            problem.status if isinstance(problem, HttpProblem) else status_code, **kwargs
        )

    def log_exception(self, typ: Any, value: Any, tb: Any) -> None:
        """Log an exception of a handler. Called by Tornado."""
        # A refused request is no fault of this service, and clients could fill the log with such
        # lines.
        if not isinstance(value, HttpProblem | tornado.web.HTTPError):
            super().log_exception(typ, value, tb)


class NotFoundHandler(JsonHandler):
    """The handler of every path that doesn't exist."""

    def prepare(self) -> None:
        """Raise a 404 problem, whatever the method."""
        raise HttpProblem(404, "not_found", "there is nothing here")


def application(routes: list[Any]) -> tornado.web.Application:
    """Return an application with ``routes`` and a JSON 404; requests are counted, not logged."""
    return tornado.web.Application(
        routes, default_handler_class=NotFoundHandler, log_function=lambda _handler: None
    )
