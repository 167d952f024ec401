"""The common parts of long-running processes: uvloop, logs, SIGTERM, health and metrics pages, and
notifications to systemd.

A service is a coroutine that runs until its ``stop`` event is set and then drains. A second signal
ends it at once.
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
# Bytes of one request: Tornado keeps all of it before a handler is asked, whatever the path.
_MAX_BODY = 64 * 1024
# A request's head and its body must each arrive in this time; an idle connection ends after it.
_IDLE_SECONDS = 60.0
# The key of the values of process_options, in click's context.
_LOG_FORMAT: Final = "newsfabric.log_format"


def _keep(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    context.meta[f"newsfabric.{parameter.name}"] = value


def process_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of every process that only :func:`run` uses, not ``command``."""
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
    """Return the networks of an option, as its callback; click's error for an invalid one."""
    try:
        return parse_networks(given)
    except ValueError as exc:
        raise click.BadParameter(terminal_safe(str(exc)), param=parameter) from exc


# libuv resolves names in half of its threads, of which it has four by default. A name server that
# doesn't answer blocks a thread for ten seconds or more, and with it all look-ups that wait: beside
# six such names a name in /etc/hosts waited for 30 s, now for none.
_LOOKUP_THREADS: Final = 64


def run(main: Callable[[asyncio.Event], Awaitable[None]], *, name: str, log_level: str) -> None:
    """Run ``main(stop)`` on uvloop until it returns; exit with 1 and one line on our own errors,
    and with a traceback on others.

    SIGTERM and SIGINT set ``stop``; the second one exits with 128 + signal number. Called in a
    command with :func:`process_options` (and :func:`newsfabric.tracing.otel_tracer.trace_options`)
    it uses their values, and that command's ``--region``.
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
        # Python would write it on stderr, past the log, in many lines.
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


READY: Final = metrics.gauge("service_ready", "1 while the process is ready for work, else 0")
BUILD: Final = metrics.gauge("service_build_info", "1; the label is the release", ["version"])
BUILD.labels(version()).set(1)


@dataclasses.dataclass(frozen=True, slots=True)
class Readiness:
    """The readiness of a process for work, and the parts that it waits for."""

    ready: bool
    waiting_for: tuple[str, ...] = ()

    @classmethod
    def of(cls, **checks: bool) -> Readiness:
        """Return a readiness that is ready when all ``checks`` hold, and waits for the others."""
        return cls(all(checks.values()), tuple(name for name, good in checks.items() if not good))


def up() -> None:
    """Notify the supervisor, if there is one, that the process has begun its work.

    Call it when the health pages answer: these report the parts that it waits for
    (:class:`Readiness`), and the start of another process must not wait for those.
    """
    sd_notify.notify(sd_notify.READY)


class HeadHandler(tornado.web.RequestHandler):
    """Base of handlers whose GET changes nothing: HEAD is answered like GET."""

    def head(self, *args: str, **kwargs: str) -> Any:
        """Reply as ``get``, without content (Tornado: RFC 9110 section 9.3.2); 405 if none."""
        return self.get(*args, **kwargs)


def methods_of(handler: tornado.web.RequestHandler) -> str:
    """Return the methods of ``handler``, in the form of ``Allow``."""
    kind, missing = type(handler), tornado.web.RequestHandler.get
    there = [name for name in kind.SUPPORTED_METHODS if getattr(kind, name.lower()) is not missing]
    if "GET" not in there and "HEAD" in there:
        there.remove("HEAD")
    return ", ".join(there)


def answer_preflight(handler: tornado.web.RequestHandler) -> None:
    """Reply 204 to a CORS preflight for a GET of pages of other origins.

    Some libraries add header fields of their own to the browser's.
    """
    handler.set_header("Access-Control-Allow-Methods", methods_of(handler))
    handler.set_header(
        "Access-Control-Allow-Headers", "Authorization, Last-Event-ID, Cache-Control"
    )
    handler.set_header("Access-Control-Max-Age", "86400")
    handler.set_status(204)


class PlainHandler(HeadHandler):
    """Base of our HTTP handlers: no Server header, nothing cached unless a handler allows it."""

    def set_default_headers(self) -> None:
        """Set our headers; Tornado calls it before each reply, and again for an error's."""
        self.clear_header("Server")
        self.set_header("Cache-Control", "no-store, no-transform")
        self.set_header("X-Content-Type-Options", "nosniff")

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Write Tornado's short page for ``status_code``; with Allow if that is 405."""
        self.set_allow_header(status_code)
        super().write_error(status_code, **kwargs)

    def set_allow_header(self, status_code: int) -> None:
        """Set ``Allow`` for a reply 405 (RFC 9110 section 15.5.6)."""
        if status_code == 405:
            self.set_header("Allow", methods_of(self))


class LiveHandler(PlainHandler):
    """A handler of ``/healthz/live``: 200 while the loop turns. Restart a silent process."""

    def get(self) -> None:
        """Reply 200 with ``{"live": true}``."""
        self.write({"live": True})


class ReadyHandler(PlainHandler):
    """A handler of ``/healthz/ready``: 200, or 503 with ``waiting_for``: give it no work then."""

    def initialize(self, readiness: Callable[[], Readiness]) -> None:
        """Set up with ``readiness``, which is called at each request; Tornado calls it."""
        self._readiness = readiness

    def get(self) -> None:
        """Reply ``{"ready": …, "waiting_for": […]}``; 503 asks for a retry after a second."""
        found = self._readiness()
        self.set_status(200 if found.ready else 503)
        if not found.ready:
            self.set_header("Retry-After", "1")
        self.write({"ready": found.ready, "waiting_for": list(found.waiting_for)})


class DocumentHandler(PlainHandler):
    """A handler of one JSON document, made at each request."""

    def initialize(self, document: Callable[[], dict[str, Any]]) -> None:
        """Set up with ``document``, which is called at each request; Tornado calls it."""
        self._document = document

    def get(self) -> None:
        """Reply 200 with the document as JSON."""
        self.write(self._document())


class TraceHandler(PlainHandler):
    """A handler of ``/trace/ID``: this process's memory of one message."""

    def initialize(self, who: dict[str, str], sightings: Sightings) -> None:
        """Set up with ``who`` (kind, name and region) and ``sightings``; Tornado calls it."""
        self._who, self._sightings = who, sightings

    def get(self, text: str) -> None:
        """Reply 200 with the sightings of ``text``, also if there are none."""
        self.write(self._who | self._sightings.sightings_document(text))


class MetricsHandler(PlainHandler):
    """A handler of ``/metrics``, in the Prometheus text format, or as OpenMetrics if asked for."""

    def initialize(self, readiness: Callable[[], Readiness]) -> None:
        """Set up with ``readiness``, for ``newsfabric_service_ready``; Tornado calls it."""
        self._readiness = readiness

    def get(self) -> None:
        """Reply 200 with all of this process's metrics, in the format that Accept names."""
        READY.set(self._readiness().ready)
        text, content_type = metrics.exposition(self.request.headers.get("Accept", ""))
        self.set_header("Content-Type", content_type)
        self.write(text)


def health_routes(readiness: Callable[[], Readiness]) -> list[Any]:
    """Return Tornado routes for ``/healthz/live`` and ``/healthz/ready``."""
    return [
        (r"/healthz/live", LiveHandler),
        (r"/healthz/ready", ReadyHandler, {"readiness": readiness}),
    ]


def operators_routes(readiness: Callable[[], Readiness]) -> list[Any]:
    """Return the health routes and ``/metrics``: for a port that only operators' programs reach."""
    return [*health_routes(readiness), (r"/metrics", MetricsHandler, {"readiness": readiness})]


def trace_route(kind: str, name: str, region: str, sightings: Sightings) -> Any:
    """Return the route of ``/trace/ID``: an id, an identity, a message_id or a beginning."""
    who = {"kind": kind, "name": name, "region": region}
    # A message_id has at most AMQP's 255 bytes, each of which may be written as %XX.
    return (r"/trace/([^/]{1,765})", TraceHandler, {"who": who, "sightings": sightings})


def listen(
    application: tornado.web.Application,
    *,
    host: str,
    port: int,
    tls: ServerFiles | None = None,
    per_address: int = 0,
) -> tuple[tornado.httpserver.HTTPServer, int]:
    """Serve ``application`` on ``host``:``port`` (0: a free one); return the server and its port.

    A handler that takes larger bodies than 64 KiB streams them, with a limit of its own. A client
    that takes no byte of a response for half a minute is closed. One address may have
    ``per_address`` connections (0: any number). With ``tls`` only https is served. ConfigError if
    the address can't be used.
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
    """Serve as :func:`listen` until the block ends, and yield the port; then close all."""
    server, found = listen(application, host=host, port=port, tls=tls)
    try:
        yield found
    finally:
        server.stop()
        await server.close_all_connections()
