"""Toxiproxy: its program on this machine, and a world's calls to its API. Blocks for some ms."""

from __future__ import annotations

import json
import os
import shutil
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from localfabric.world.broker import HOST
from newsfabric.errors import WorldError

_TIMEOUT: Final = 5.0
# Our toxics have names of ours, so that healing leaves alone toxics that a person added.
_CUT, _SLOW = "newsfabric-cut", "newsfabric-slow"
_STREAMS: Final = ("upstream", "downstream")


def find_toxiproxy(root: Path, environ: Mapping[str, str]) -> str | None:
    """Return its program: ``$NEWSFABRIC_TOXIPROXY``, in ``.tools`` of the checkout, or on the PATH.

    An empty ``NEWSFABRIC_TOXIPROXY`` disables it.
    """
    named = environ.get("NEWSFABRIC_TOXIPROXY")
    if named is not None:
        return named or None
    unpacked = root.resolve() / ".tools" / "toxiproxy" / "toxiproxy-server"
    if os.access(unpacked, os.X_OK):
        return str(unpacked)
    return shutil.which("toxiproxy-server", path=environ.get("PATH"))


class Toxiproxy:
    """The API of the Toxiproxy on loopback ``port``. Every method may raise WorldError."""

    def __init__(self, port: int) -> None:
        self._base = f"http://{HOST}:{port}"

    def cut(self, names: Iterable[str]) -> None:
        """Drop all data silently, as a dead wire does."""
        for name in names:
            for stream in _STREAMS:
                self._add(name, f"{_CUT}-{stream}", "timeout", stream, {"timeout": 0})

    def slow(self, names: Iterable[str], *, latency_ms: int, jitter_ms: int) -> None:
        """Delay all data by this latency, each way."""
        attributes = {"latency": latency_ms, "jitter": jitter_ms}
        for name in names:
            for stream in _STREAMS:
                self._add(name, f"{_SLOW}-{stream}", "latency", stream, attributes)

    def heal(self, names: Iterable[str]) -> None:
        """Remove our toxics; connections that were cut are closed now."""
        for name in names:
            for toxic in self._toxics(name):
                self._ask("DELETE", f"/proxies/{name}/toxics/{toxic}")

    def ill(self, names: Sequence[str]) -> list[str]:
        """Return those of ``names`` that have toxics of ours."""
        found = self._ask("GET", "/proxies")
        return [name for name in names if _ours(found.get(name, {}).get("toxics", []))]

    def _toxics(self, name: str) -> list[str]:
        return _ours(self._ask("GET", f"/proxies/{name}")["toxics"])

    def _add(self, name: str, toxic: str, kind: str, stream: str, attributes: Any) -> None:
        if toxic in self._toxics(name):
            self._ask("DELETE", f"/proxies/{name}/toxics/{toxic}")
        body = {"name": toxic, "type": kind, "stream": stream, "attributes": attributes}
        self._ask("POST", f"/proxies/{name}/toxics", body)

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        # Toxiproxy refuses user agents of browsers; S310: the URL is ours.
        request = urllib.request.Request(self._base + path, data=data, method=method)  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT) as answer:  # noqa: S310
                return json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as exc:
            answer = exc.read()[:200].decode("utf-8", "replace")
            raise WorldError(f"toxiproxy: {method} {path}: {exc.code} {answer}") from exc
        except (OSError, ValueError) as exc:
            raise WorldError(f"toxiproxy doesn't answer: {exc}") from exc


def _ours(toxics: Iterable[Mapping[str, Any]]) -> list[str]:
    return [toxic["name"] for toxic in toxics if str(toxic["name"]).startswith((_CUT, _SLOW))]
