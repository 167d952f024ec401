"""All limits and intervals of a gateway, as one value. Seconds and bytes throughout.

Only settings without an option are described here; options are in ``python -m gateway --help``.
"""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Final

from gateway.logs.logs import LogLimits
from gateway.memory.hub import HubLimits
from gateway.wire.outbox import OutboxLimits
from gateway.wire.protocol import ReaderLimits
from newsfabric.errors import ConfigError
from newsfabric.http.networks import Network
from newsfabric.http.pace import HISTORY_RATE, Rate

ANY_ORIGIN = ("*",)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NativeSettings:
    """Settings that only the native engine uses.

    A data plane drains after ``alone_seconds`` without a control plane. Messages of
    ``deflate_bytes`` or more are compressed for readers who want it (0: never). The data plane
    answers plain pings if it has heard the control plane within ``pong_seconds`` (0: never).
    """

    # None: a path made from the port's number.
    socket: Path | None = None
    threads: int = 0
    proxy_from: tuple[str, ...] = ()
    alone_seconds: float = 60.0
    head_bytes: int = 16 * 1024
    deflate_bytes: int = 256
    # The control plane sends its state each second; a frozen one must not seem well for long.
    pong_seconds: float = 2.0


_COOKIE: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}", re.ASCII)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TokenSettings:
    """Settings for the checks of readers' tokens.

    ``cookie`` counts only for pages of listed origins and of our own host. Tokens cause a read of
    the keys at most once in ``keys_again`` seconds.
    """

    # None: no logins.
    keys: str | None = None
    audience: str | None = None
    issuer: str | None = None
    cookie: str | None = None
    leeway: float = 5.0
    keys_again: float = 10.0

    def __post_init__(self) -> None:
        if self.cookie is None:
            return
        if self.keys is None:
            raise ConfigError("a token cookie (--token-cookie) needs keys (--token-keys)")
        # RFC 6265 section 4.1.1: a cookie's name is a token.
        if _COOKIE.fullmatch(self.cookie) is None:
            raise ConfigError(f"{self.cookie!r} is no name of a cookie")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    """Settings of a gateway; the defaults suit a box of 100,000 readers.

    Programs send no origin, and are let in whatever ``origins`` are. A message that a reader has
    begun must be whole within ``unfinished_seconds``, in the native engine a request's head too.
    ``replay_bytes`` limits the replay of one subscribe or history: the newest messages that fit.
    For readers who resume, at most ``resume_rows`` copies of messages, with bodies of
    ``resume_bytes``, are read from the store; four times as much is kept for a minute. Mailboxes
    are read ``mailbox_batch`` at a time, ``mailbox_reads`` such reads at once;
    ``mailboxes_waiting`` more may wait. A gateway without a feed for ``feed_timeout_seconds`` asks
    ``endpoints`` whether readers are better served elsewhere. Bodies of ``xhr_send`` under way have
    ``sockjs_bodies_bytes`` together. With ``sockjs_same_address`` a SockJS session over HTTP takes
    requests only from the place where it began.
    """

    name: str
    region: str
    host: str = "127.0.0.1"
    port: int = 0
    admin_port: int = 0
    public_url: str | None = None
    origins: tuple[str, ...] = ANY_ORIGIN
    endpoints: tuple[str, ...] = ()
    frontdesks: tuple[Network, ...] = ()
    admin_hosts: tuple[str, ...] = ()
    sockjs_url: str = "/sockjs.min.js"
    sockjs_legacy: bool = False
    sockjs_cookie: bool = False
    sockjs_same_address: bool = False
    websocket: bool = True
    sockjs_response_bytes: int = 128 * 1024
    sockjs_disconnect_delay: float = 5.0
    sockjs_bodies_bytes: int = 64 << 20

    capacity: int = 100_000
    per_address: int = 0
    heartbeat: float = 25.0
    linger: float = 5.0
    unfinished_seconds: float = 10.0
    drain_seconds: float = 10.0
    drain_per_second: int = 2_000
    retry_after_ms: int = 2_000

    feed_fresh: float = 5.0
    # A frontdesk omits a box after feed_fresh; five seconds later no cached answer lists it.
    feed_timeout_seconds: float = 10.0
    history_rate: Rate = HISTORY_RATE
    prefetch: int = 1_000
    # Deliveries of one message before other work gets its turn. Measured with six I/O threads on
    # one core in the middle of 100,000-reader fan-outs, another topic's message: 88 ms (p50) with
    # 1,000, 16 ms with 100, 5 ms with 32; the cost of a delivery was the same each time.
    fanout_chunk: int = 32
    store_timeout: float = 5.0
    store_reads: int = 8
    store_waiting: int = 1_000
    latest_keys: int = 200
    outbox_memory: int = 256 << 20
    stalled_seconds: float = 30.0
    replay_bytes: int = 1 << 20
    resume_rows: int = 10_000
    resume_bytes: int = 32 << 20
    # Measured, 10,000 mailboxes of five messages in SQLite: see docs/performance.md.
    mailbox_reads: int = 2
    mailbox_batch: int = 64
    mailboxes_waiting: int = 100_000

    reader: ReaderLimits = dataclasses.field(default_factory=ReaderLimits)
    outbox: OutboxLimits = dataclasses.field(default_factory=OutboxLimits)
    hub: HubLimits = dataclasses.field(default_factory=HubLimits)
    logs: LogLimits = dataclasses.field(default_factory=LogLimits)
    tokens: TokenSettings = dataclasses.field(default_factory=TokenSettings)
    native: NativeSettings = dataclasses.field(default_factory=NativeSettings)

    @property
    def is_secure(self) -> bool:
        """True if readers come over HTTPS."""
        return self.public_url is not None and self.public_url.lower().startswith("https:")
