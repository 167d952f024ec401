"""TLS of this process: trusted authorities, own certificates, and when these end.

:class:`newsfabric.settings.TlsFiles` and :class:`ServerFiles` name the files;
:mod:`operations.certificates` makes them. Verification is always on, of host names too: no code
here turns it off.

Changed files are read again for the next connection, so that a renewal needs no restart. Two files
that don't belong together, as in the middle of a renewal, change nothing: the previous context
stays in use, and the files are read again for the connection after. The metric has the end of the
certificate in use, not of one in an unusable file.
"""

from __future__ import annotations

import datetime
import logging
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from newsfabric import metrics
from newsfabric.errors import ConfigError
from newsfabric.line_limits import RepeatedFailures
from newsfabric.settings import ServerFiles, TlsFiles

logger = logging.getLogger(__name__)

CERTIFICATES_END: Final = metrics.gauge(
    "tls_certificate_expiry_timestamp_seconds",
    "End of the certificate that this process shows or trusts, as Unix time; of several "
    "authorities in one file, the last end",
    ["use"],
)

_Stamp = tuple[int, int, int] | None


class ClientTls:
    """A TLS context of connections that we open. ConfigError if ``files`` can't be used.

    ``also_system`` trusts the machine's authorities beside those of ``files``: for peers inside the
    fabric or in the internet.
    """

    def __init__(self, files: TlsFiles, *, also_system: bool = False) -> None:
        self._files = files
        self._also_system = also_system
        held = (files.authorities, files.certificate, files.key)
        named = {"authority": files.authorities, "client": files.certificate}
        self._fresh = _Fresh(
            [file for file in held if file is not None],
            self._make,
            shown={use: file for use, file in named.items() if file is not None},
        )

    def context(self) -> ssl.SSLContext:
        """Return the context for the next connection; pass it the host's name, which it checks."""
        return self._fresh.now()

    def _make(self) -> ssl.SSLContext:
        files = self._files
        if self._also_system or files.authorities is None:
            context = ssl.create_default_context()
            if files.authorities is not None:
                context.load_verify_locations(cafile=files.authorities)
        else:
            context = ssl.create_default_context(cafile=files.authorities)
        if files.certificate is not None:
            context.load_cert_chain(files.certificate, files.key)
        return context


class ServerTls:
    """A TLS context of a port of ours. ConfigError if ``files`` can't be used.

    Give :attr:`context` to the server once.
    """

    def __init__(self, files: ServerFiles) -> None:
        self._files = files
        self._fresh = _Fresh(
            [files.certificate, files.key], self._make, shown={"server": files.certificate}
        )
        #: The context for the server; each handshake uses the current files.
        self.context = self._make()
        self.context.sni_callback = self._renew

    def _make(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(self._files.certificate, self._files.key)
        return context

    def _renew(self, socket: Any, _name: str | None, _context: ssl.SSLContext) -> None:
        # Called for every handshake, also without a server name.
        socket.context = self._fresh.now()


class _Fresh:
    """A context made of ``files``, and made again when one of them has changed.

    ``shown`` has the files whose end is in /metrics, by their use.
    """

    def __init__(
        self,
        files: Sequence[Path],
        make: Callable[[], ssl.SSLContext],
        *,
        shown: Mapping[str, Path],
    ) -> None:
        self._files = tuple(files)
        self._make = make
        self._shown = dict(shown)
        self._failures = RepeatedFailures()
        # Before the files are read: a change meanwhile is noticed the next time.
        self._stamps = self._read_stamps()
        try:
            self._read()
        except (OSError, ValueError) as exc:
            raise ConfigError(f"TLS: {self._named()}: {_reason(exc)}") from exc
        for use, file in self._shown.items():
            _hold(use, file, self)

    def _read(self) -> None:
        context = self._make()
        self._texts = {use: file.read_bytes() for use, file in self._shown.items()}
        self._context = context
        self._ends: dict[str, float] = {}

    def now(self) -> ssl.SSLContext:
        stamps = self._read_stamps()
        if stamps != self._stamps:
            try:
                self._read()
            except (OSError, ValueError) as exc:
                text = f"TLS: {self._named()}: {_reason(exc)}"
                if self._failures.should_log(text, time.monotonic()):
                    logger.warning("%s; keeping the certificates read before", text)
            else:
                self._stamps = stamps
                self._failures.ended()
                logger.info("TLS: reloaded %s", self._named())
        return self._context

    def ends(self, use: str) -> float:
        """Return the Unix time at which the next connection's certificate ends, else NaN."""
        self.now()
        if use not in self._ends:
            try:
                ends = [end.timestamp() for end in _ends_in(self._texts[use])]
                # Of several authorities a single valid one is enough; of a chain all must be valid.
                self._ends[use] = max(ends) if use == "authority" else min(ends)
            except ValueError:
                self._ends[use] = float("nan")
        return self._ends[use]

    def _read_stamps(self) -> tuple[_Stamp, ...]:
        return tuple(_stamp(file) for file in self._files)

    def _named(self) -> str:
        return ", ".join(map(str, self._files)) or "the machine's authorities"


# The contexts behind /metrics, by use and file. A process has a handful, known when it starts.
_HELD: Final[dict[str, dict[Path, _Fresh]]] = {}


def _hold(use: str, file: Path, fresh: _Fresh) -> None:
    held = _HELD.setdefault(use, {})
    held[file] = fresh
    CERTIFICATES_END.labels(use).set_function(lambda: min(one.ends(use) for one in held.values()))


def _ends_in(pem: bytes) -> list[datetime.datetime]:
    # A slow import, which most processes never need.
    from cryptography import x509

    try:
        return [one.not_valid_after_utc for one in x509.load_pem_x509_certificates(pem)]
    except x509.InvalidVersion as exc:
        raise ValueError(str(exc)) from exc


def _stamp(file: Path) -> _Stamp:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size


def _reason(exc: OSError | ValueError) -> str:
    if isinstance(exc, ssl.SSLError) and exc.reason == "KEY_VALUES_MISMATCH":
        return "the key isn't the certificate's"
    return getattr(exc, "strerror", None) or str(exc)
