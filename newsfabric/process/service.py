"""What every long-running process does alike: uvloop, logs, SIGTERM, health and metrics pages,
and what it says to systemd.

A service is a coroutine that runs until its ``stop`` event is set and then drains.
A second signal ends it at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Final

import click
import tornado.httpserver
import tornado.web
import uvloop

from newsfabric import metrics
from newsfabric.errors import ConfigError, NewsfabricError
from newsfabric.http.networks import Network, parse_networks
from newsfabric.http.taking import TakingServer
from newsfabric.process import logs, sd_notify
from newsfabric.process._listener import SpareListener
from newsfabric.process.version import version
from newsfabric.safe_output import terminal_safe
from newsfabric.settings import ServerFiles
from newsfabric.tls import ServerTls
from newsfabric.tracing import otel_tracer
from newsfabric.tracing.sightings import Sightings

logger = logging.getLogger(__name__)

# Connections that wait to be accepted while the loop is busy.
BACKLOG = 1024
# Of one request: Tornado keeps all of it before a handler is asked, whatever the path is.
_MAX_BODY = 64 * 1024
# A request's head and its body must each come within this time; so long an idle connection is kept.
_IDLE_SECONDS = 60.0
# Where the values of process_options are, in click's context.
_LOG_FORMAT: Final = "newsfabric.log_format"


def _keep(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    context.meta[f"newsfabric.{parameter.name}"] = value


def process_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options of every process that :func:`run` alone needs: they aren't given to ``command``."""
    return click.option(
        "--log-format",
        type=click.Choice(logs.LOG_FORMATS),
        default="text",
        show_default=True,
        envvar="NEWSFABRIC_LOG_FORMAT",
        show_envvar=True,
        expose_value=False,
        callback=_keep,
        help="Lines of text, or of JSON.",
    )(command)


def networks_given(
    _context: click.Context, parameter: click.Parameter, given: Sequence[str]
) -> tuple[Network, ...]:
    """The callback of an option that takes networks; click's error for what is none."""
    try:
        return parse_networks(given)
    except ValueError as exc:
        raise click.BadParameter(terminal_safe(str(exc)), param=parameter) from exc


# libuv looks up names in half of its threads, of which it has four unless it is told otherwise. A
# name server that doesn't answer holds one for ten seconds or more, and all that wait behind it:
# beside six such names one of /etc/hosts waited for 30 s, now for none.
_LOOKUP_THREADS: Final = 64


def run(main: Callable[[asyncio.Event], Awaitable[None]], *, name: str, log_level: str) -> None:
    """Run ``main(stop)`` on uvloop until it returns; exits 1 with one line on our own errors, and
    with a traceback on others.

    SIGTERM and SIGINT set ``stop``; the second one exits with 128 + signal number. Called in a
    command with :func:`process_options` (and :func:`newsfabric.tracing.otel_tracer.trace_options`)
    it obeys these, and tells that command's ``--region``.
    """
    context = click.get_current_context(silent=True)
    options = {} if context is None else context.meta
    region = "" if context is None else str(context.params.get("region") or "")
    form: logs.LogFormat = options.get(_LOG_FORMAT, "text")
    logs.log_to(sys.stderr, log_level, form, process=name, region=region)
    os.environ |= logs.handed_down(form, process=name, region=region)
    os.environ.setdefault("UV_THREADPOOL_SIZE", str(_LOOKUP_THREADS))
    try:
        traces = otel_tracer.settings_of(options)
        uvloop.run(_until_stopped(main, name, region, traces))
    except NewsfabricError as exc:
        logger.critical("%s: %s", name, exc)
        sys.exit(1)
    except Exception:
        # Python itself would write it past the log, in many lines.
        logger.critical("%s ends by a fault of ours", name, exc_info=True)
        sys.exit(1)


async def _until_stopped(
    main: Callable[[asyncio.Event], Awaitable[None]],
    name: str,
    region: str,
    traces: otel_tracer.TraceSettings,
) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_signal(number: int) -> None:
        if stop.is_set():
            os._exit(128 + number)
        logger.info("%s stops on %s", name, signal.Signals(number).name)
        sd_notify.notify(sd_notify.STOPPING)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)
    logger.info("%s starts, pid %d", name, os.getpid())
    watched = loop.create_task(sd_notify.keep_watched())
    try:
        async with otel_tracer.running(traces, instance=name, region=region):
            await main(stop)
    finally:
        watched.cancel()
    logger.info("%s has stopped", name)


READY: Final = metrics.gauge("service_ready", "1 while the process should be given work, else 0")
BUILD: Final = metrics.gauge("service_build_info", "1; the label says what runs", ["version"])
BUILD.labels(version()).set(1)


@dataclasses.dataclass(frozen=True, slots=True)
class Readiness:
    """Whether a process should be given work, and if not, what it waits for."""

    ready: bool
    waiting_for: tuple[str, ...] = ()

    @classmethod
    def of(cls, **checks: bool) -> Readiness:
        """Ready when all named ``checks`` hold; the others are what it waits for."""
        return cls(all(checks.values()), tuple(name for name, good in checks.items() if not good))


def up() -> None:
    """Tell the supervisor, if there is one, that the process has begun its work.

    Say it when the health pages answer: what it still waits for (:class:`Readiness`) is told there,
    and no start of another process should wait for that.
    """
    sd_notify.notify(sd_notify.READY)


class HeadHandler(tornado.web.RequestHandler):
    """Base of handlers whose GET changes nothing: HEAD asks for the same."""

    def head(self, *args: str, **kwargs: str) -> Any:
        """As ``get``; Tornado leaves the content out (RFC 9110 section 9.3.2). 405 without one."""
        return self.get(*args, **kwargs)


def methods_of(handler: tornado.web.RequestHandler) -> str:
    """What ``handler`` can be asked, as ``Allow`` has it."""
    kind, missing = type(handler), tornado.web.RequestHandler.get
    there = [name for name in kind.SUPPORTED_METHODS if getattr(kind, name.lower()) is not missing]
    if "GET" not in there and "HEAD" in there:
        there.remove("HEAD")
    return ", ".join(there)


def answer_preflight(handler: tornado.web.RequestHandler) -> None:
    """204 to a CORS preflight of what pages of other origins may ask with GET.

    Libraries that aren't the browser's own send some fields themselves.
    """
    handler.set_header("Access-Control-Allow-Methods", methods_of(handler))
    handler.set_header(
        "Access-Control-Allow-Headers", "Authorization, Last-Event-ID, Cache-Control"
    )
    handler.set_header("Access-Control-Max-Age", "86400")
    handler.set_status(204)


class PlainHandler(HeadHandler):
    """Base of our HTTP handlers: no Server header, nothing cached unless said otherwise."""

    def set_default_headers(self) -> None:
        """Tornado calls it before each answer, and again for an error's."""
        self.clear_header("Server")
        self.set_header("Cache-Control", "no-store, no-transform")
        self.set_header("X-Content-Type-Options", "nosniff")

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Tornado's short page for ``status_code``; with Allow if that is 405."""
        self.say_what_is_allowed(status_code)
        super().write_error(status_code, **kwargs)

    def say_what_is_allowed(self, status_code: int) -> None:
        """RFC 9110 section 15.5.6: an answer 405 says which methods there are."""
        if status_code == 405:
            self.set_header("Allow", methods_of(self))


class LiveHandler(PlainHandler):
    """``/healthz/live``: 200 while the loop turns. Restart the process if it doesn't answer."""

    def get(self) -> None:
        """200 with ``{"live": true}``."""
        self.write({"live": True})


class ReadyHandler(PlainHandler):
    """``/healthz/ready``: 200, or 503 with what it waits for. Give it no work meanwhile."""

    def initialize(self, readiness: Callable[[], Readiness]) -> None:
        """Tornado gives it ``readiness``, which is asked at each request."""
        self._readiness = readiness

    def get(self) -> None:
        """Answer ``{"ready": …, "waiting_for": […]}``; 503 says to try again after a second."""
        found = self._readiness()
        self.set_status(200 if found.ready else 503)
        if not found.ready:
            self.set_header("Retry-After", "1")
        self.write({"ready": found.ready, "waiting_for": list(found.waiting_for)})


class DocumentHandler(PlainHandler):
    """One JSON document, made when it is asked for."""

    def initialize(self, document: Callable[[], dict[str, Any]]) -> None:
        """Tornado gives it ``document``, which is called at each request."""
        self._document = document

    def get(self) -> None:
        """200 with the document as JSON."""
        self.write(self._document())


class TraceHandler(PlainHandler):
    """``/trace/ID``: what this process remembers of one message."""

    def initialize(self, who: dict[str, str], sightings: Sightings) -> None:
        """Tornado gives it ``who``, the process's kind, name and region, and its ``sightings``."""
        self._who, self._sightings = who, sightings

    def get(self, text: str) -> None:
        """200 with what :meth:`Sightings.document` has for ``text``, also if that is nothing."""
        self.write(self._who | self._sightings.document(text))


class MetricsHandler(PlainHandler):
    """``/metrics`` in the Prometheus text format, or as OpenMetrics for who asks for it."""

    def initialize(self, readiness: Callable[[], Readiness]) -> None:
        """Tornado gives it ``readiness``, for ``newsfabric_service_ready``."""
        self._readiness = readiness

    def get(self) -> None:
        """200 with all of this process's metrics, in the format that Accept names."""
        READY.set(self._readiness().ready)
        text, content_type = metrics.exposition(self.request.headers.get("Accept", ""))
        self.set_header("Content-Type", content_type)
        self.write(text)


def health_routes(readiness: Callable[[], Readiness]) -> list[Any]:
    """Tornado routes for ``/healthz/live`` and ``/healthz/ready``."""
    return [
        (r"/healthz/live", LiveHandler),
        (r"/healthz/ready", ReadyHandler, {"readiness": readiness}),
    ]


def operators_routes(readiness: Callable[[], Readiness]) -> list[Any]:
    """Those, and ``/metrics``: for a port that only operators' programs reach."""
    return [*health_routes(readiness), (r"/metrics", MetricsHandler, {"readiness": readiness})]


def trace_route(kind: str, name: str, region: str, sightings: Sightings) -> Any:
    """The Tornado route of ``/trace/ID``, an id, an identity, a message_id or a beginning."""
    who = {"kind": kind, "name": name, "region": region}
    # A message_id has as many bytes as AMQP allows, each may be written as %XX.
    return (r"/trace/([^/]{1,765})", TraceHandler, {"who": who, "sightings": sightings})


def listen(
    application: tornado.web.Application,
    *,
    host: str,
    port: int,
    tls: ServerFiles | None = None,
    per_address: int = 0,
) -> tuple[tornado.httpserver.HTTPServer, int]:
    """Serve ``application`` on ``host``:``port`` (0: a free one); returns the server and its port.

    A handler that takes larger bodies than 64 KiB streams them, and says how large they may be.
    Who takes nothing of an answer for half a minute is closed. One address may have ``per_address``
    connections (0: any number).
    With ``tls`` it is https alone. ConfigError when the address can't be had.
    """
    context = None if tls is None else ServerTls(tls).context
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        # Not Tornado's bind_sockets, which leaves a socket open when the port is taken.
        listener = SpareListener(socket.create_server((host, port), family=family, backlog=BACKLOG))
    except OSError as exc:
        raise ConfigError(f"can't listen on {host} port {port}: {exc.strerror or exc}") from exc
    listener.setblocking(False)
    server = TakingServer(
        application,
        max_body_size=_MAX_BODY,
        idle_connection_timeout=_IDLE_SECONDS,
        body_timeout=_IDLE_SECONDS,
        ssl_options=context,
        per_address=per_address,
    )
    server.add_socket(listener)
    return server, int(listener.getsockname()[1])


@contextlib.asynccontextmanager
async def serving(
    application: tornado.web.Application,
    *,
    host: str,
    port: int,
    tls: ServerFiles | None = None,
) -> AsyncIterator[int]:
    """:func:`listen` until the block ends, which gets the port; then close every connection."""
    server, found = listen(application, host=host, port=port, tls=tls)
    try:
        yield found
    finally:
        server.stop()
        await server.close_all_connections()
