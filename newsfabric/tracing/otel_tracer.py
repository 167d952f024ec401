"""A sender of spans to a collector, OTLP over HTTP as JSON. Off unless an endpoint is given.

No code waits for it. Spans wait in a queue of :data:`ROOM`; when it is full, new spans are dropped
and counted. One request is in flight at a time, of at most :data:`BATCH` spans, so that a batch
costs the loop a millisecond or two. While the collector is away the oldest batch is retried with
backoff, and new spans are dropped when the queue is full.

A process has one tracer, as it has one registry of metrics: :func:`current`, which :func:`running`
sets until the end of its block.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import logging
import math
from collections.abc import AsyncIterator, Callable, Iterable
from importlib.metadata import version
from typing import Any, Final
from urllib.parse import urlsplit

import click
import orjson
from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.simple_httpclient import SimpleAsyncHTTPClient

from newsfabric import metrics
from newsfabric.backoff import Backoff
from newsfabric.errors import ConfigError
from newsfabric.http.fetching import NO_ANSWER, fetch
from newsfabric.line_limits import RepeatedFailures
from newsfabric.tracing.otel_spans import Context, Span, context_of, otlp

logger = logging.getLogger(__name__)

ROOM: Final = 4096
BATCH: Final = 64
# Seconds that a batch that isn't full waits for more spans.
_LINGER: Final = 0.2
_TIMEOUT: Final = 5.0
# Seconds for the last spans at the end of the process.
_FAREWELL: Final = 2.0
_MAX_ANSWER: Final = 64 * 1024
# OTLP 1.0, "Retryable Response Codes".
_AGAIN: Final = frozenset({429, 502, 503, 504, NO_ANSWER})

SPANS: Final = metrics.counter(
    "traces_spans", "Spans for the collector of traces, by outcome", ["outcome"]
)
QUEUED: Final = metrics.gauge("traces_waiting_spans", "Spans that wait to be sent")
_SENT: Final = SPANS.labels("sent")
_DROPPED: Final = SPANS.labels("dropped")
_REFUSED: Final = SPANS.labels("refused")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TraceSettings:
    """The collector's base URL for spans (empty: none are sent), and the sampled share of messages
    without a ``traceparent``. ConfigError for an invalid value."""

    endpoint: str = ""
    sample: float = 0.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.sample) and 0 <= self.sample <= 1):
            raise ConfigError("--trace-sample is a share from 0 to 1")
        if self.endpoint and not _is_base_url(self.endpoint):
            raise ConfigError("--otlp-endpoint: write http://HOST:PORT or https://HOST, no login")


class Tracer:
    """The spans of one process. Without an endpoint all spans are ignored."""

    def __init__(
        self, settings: TraceSettings | None = None, *, instance: str = "", region: str = ""
    ) -> None:
        self._settings = settings or TraceSettings()
        self._who = {"instance": instance, "region": region, "version": version("newsfabric")}
        self._waiting: collections.deque[Span] = collections.deque()
        self._wake = asyncio.Event()
        self._stopping = asyncio.Event()
        self._failures = RepeatedFailures()
        self._backoff = Backoff(base=0.5, cap=10.0)

    @property
    def is_on(self) -> bool:
        """True if spans are sent."""
        return bool(self._settings.endpoint)

    def context(self, identity: int, traceparent: str | None) -> Context | None:
        """Return the trace of a message; None if it isn't traced: then make no spans for it."""
        if not self._settings.endpoint:
            return None
        return context_of(identity, traceparent, self._settings.sample)

    def add(self, spans: Iterable[Span]) -> None:
        """Queue ``spans`` for sending, or drop them if the queue is full. Never waits."""
        if not self.is_on:
            return
        for span in spans:
            if len(self._waiting) >= ROOM:
                _DROPPED.inc()
            else:
                self._waiting.append(span)
        self._wake.set()

    async def run(self) -> None:
        """Send until :meth:`stop`, and then once more the waiting spans."""
        http = SimpleAsyncHTTPClient(force_instance=True, max_body_size=_MAX_ANSWER)
        loop = asyncio.get_running_loop()
        try:
            while self._waiting or not self._stopping.is_set():
                await self._wait_for_some()
                if not self._waiting:
                    continue
                if await self._try(http):
                    self._backoff.succeeded(loop.time())
                elif self._stopping.is_set():
                    break
                else:
                    await self._pause(self._backoff.failed(loop.time()))
        finally:
            _DROPPED.inc(len(self._waiting))
            self._waiting.clear()
            QUEUED.set(0)
            http.close()

    def stop(self) -> None:
        """End :meth:`run`."""
        self._stopping.set()
        self._wake.set()

    async def _wait_for_some(self) -> None:
        while not (self._waiting or self._stopping.is_set()):
            self._wake.clear()
            await self._wake.wait()
        if len(self._waiting) < BATCH:
            await self._pause(_LINGER)

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)

    async def _try(self, http: SimpleAsyncHTTPClient) -> bool:
        """Send the oldest batch, in the queue until then; return whether it is settled."""
        batch = [self._waiting[n] for n in range(min(BATCH, len(self._waiting)))]
        QUEUED.set(len(self._waiting))
        status, body = await self._post(http, orjson.dumps(otlp(batch, **self._who)))
        if status in _AGAIN:
            self._complain(f"no traces to the collector: {status}")
            return False
        for _ in batch:
            self._waiting.popleft()
        QUEUED.set(len(self._waiting))
        if 200 <= status < 300:
            refused = min(len(batch), _refused(body))
            _SENT.inc(len(batch) - refused)
            _REFUSED.inc(refused)
            self._failures.ended()
        else:
            _REFUSED.inc(len(batch))
            self._complain(f"the collector of traces refuses spans: {status}")
        return True

    async def _post(self, http: SimpleAsyncHTTPClient, body: bytes) -> tuple[int, bytes]:
        request = HTTPRequest(
            f"{self._settings.endpoint.rstrip('/')}/v1/traces",
            method="POST",
            body=body,
            headers={"Content-Type": "application/json"},
            connect_timeout=_TIMEOUT,
            request_timeout=_TIMEOUT,
            follow_redirects=False,
        )
        try:
            answer = await fetch(http, request, raise_error=False)
        except (OSError, HTTPClientError, ValueError):
            return NO_ANSWER, b""
        return answer.code, answer.body

    def _complain(self, text: str) -> None:
        if self._failures.should_log(text, asyncio.get_running_loop().time()):
            logger.warning("%s", text)


_OFF: Final = TraceSettings()
_current: list[Tracer] = []


def current() -> Tracer:
    """Return the process's tracer; outside :func:`running` one that ignores all spans."""
    return _current[-1] if _current else Tracer(_OFF)


@contextlib.asynccontextmanager
async def running(settings: TraceSettings, *, instance: str, region: str) -> AsyncIterator[Tracer]:
    """Run a tracer that is :func:`current` and sends, until the end of the block."""
    tracer = Tracer(settings, instance=instance, region=region)
    _current.append(tracer)
    sending = asyncio.create_task(tracer.run()) if tracer.is_on else None
    try:
        yield tracer
    finally:
        _current.remove(tracer)
        if sending is not None:
            tracer.stop()
            await asyncio.wait([sending], timeout=_FAREWELL)
            sending.cancel()
            await asyncio.wait([sending])


def trace_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of processes that make spans, which
    :func:`newsfabric.process.service.run` reads."""
    for option in (
        click.option(
            "--trace-sample",
            type=float,
            default=0.0,
            show_default=True,
            metavar="SHARE",
            envvar="NEWSFABRIC_TRACE_SAMPLE",
            show_envvar=True,
            expose_value=False,
            callback=_keep,
            help="Of messages without a traceparent, trace this share; the same everywhere.",
        ),
        click.option(
            "--otlp-endpoint",
            default="",
            metavar="URL",
            envvar="NEWSFABRIC_OTLP_ENDPOINT",
            show_envvar=True,
            expose_value=False,
            callback=_keep,
            help="A collector of traces, OTLP over HTTP.  [default: no traces]",
        ),
    ):
        command = option(command)
    return command


def settings_of(options: dict[str, Any]) -> TraceSettings:
    """Return the values of :func:`trace_options`, from click's ``Context.meta``."""
    return TraceSettings(
        endpoint=options.get(f"{__name__}.otlp_endpoint", ""),
        sample=options.get(f"{__name__}.trace_sample", 0.0),
    )


def _keep(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    context.meta[f"{__name__}.{parameter.name}"] = value


def _refused(body: bytes) -> int:
    """Return the number of spans that a collector refused (OTLP 1.0, "Partial Success")."""
    try:
        count = int(orjson.loads(body)["partialSuccess"]["rejectedSpans"])
    except (ValueError, KeyError, TypeError):
        return 0
    return max(0, count)


def _is_base_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return known and parts.username is None and not parts.query and not parts.fragment
