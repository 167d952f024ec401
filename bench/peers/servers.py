"""A peer's server, started on the server core, and its commands to publish."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import secrets
import tempfile
import urllib.parse
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import jwt
import psutil

from bench.box import BenchBox, running_box
from bench.meter import processor_seconds, resident_bytes
from bench.programs import Program, on_server_core, started
from bench.prose import prose
from localfabric.nodes.ports import free_ports

#: The length of the other fields; the text of ``payload`` is padded beside them.
_STAMP: Final = len(json.dumps({"sent_ns": 10**15, "text": ""}, separators=(",", ":")))
_NGINX: Final = """daemon off; master_process on; worker_processes 1; worker_rlimit_nofile 60000;
pid {folder}/pid; error_log {folder}/error.log; load_module {module};
events {{ worker_connections 50000; }}
http {{
  access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  client_body_buffer_size 64k; keepalive_requests 1000000;
  server {{
    listen 127.0.0.1:{port} backlog=1024;
    location /publish {{ nchan_publisher http; nchan_channel_id $arg_topic; {deflate} }}
    location /subscribe {{ nchan_subscriber websocket; nchan_channel_id $arg_topic; }}
  }}
}}
"""
#: The path of Mercure's endpoint.
MERCURE: Final = "/.well-known/mercure"
_PATIENCE: Final = 20.0


class Server:
    """A server that listens at ``port``; ``pids`` are its processes.

    ``send(topic, due_ns, size)`` makes the server publish one message. Its payload has ``size``
    bytes and contains ``due_ns``, the time when it was due (nanoseconds of the monotonic clock).
    """

    def __init__(
        self, port: int, pids: Sequence[int], send: Callable[[int, int, int], Awaitable[None]]
    ) -> None:
        self.port = port
        self._pids = pids
        self.send = send

    def spent(self) -> float:
        """Return the processor seconds of all processes so far."""
        return sum(map(processor_seconds, self._pids))

    def resident(self) -> int:
        """Return the bytes in RAM of all processes."""
        return sum(map(resident_bytes, self._pids))


def payload(due_ns: int, size: int) -> str:
    """Return a JSON text of ``size`` bytes that contains ``due_ns``."""
    text = prose(size - _STAMP + 16 - len(str(due_ns)), due_ns)
    stamped = {"sent_ns": due_ns, "text": text}
    return json.dumps(stamped, separators=(",", ":"))


@contextlib.asynccontextmanager
async def lines_to(
    command: Sequence[str],
    environment: Mapping[str, str] | None = None,
    *,
    deflates: bool = False,
) -> AsyncIterator[Server]:
    """Start a program of ``programs/`` with its port and, to compress, ``deflate`` as arguments. It
    reads ``TOPIC PAYLOAD`` lines."""
    (port,) = free_ports(1)
    words = on_server_core([*command, str(port), *(["deflate"] if deflates else [])])
    async with started(words, dict(os.environ) | dict(environment or {})) as process:
        program = Program(process)
        await program.next_reply()

        async def send(topic: int, due_ns: int, size: int) -> None:
            await program.send(f"{topic} {payload(due_ns, size)}")

        yield Server(port, [process.pid], send)


@contextlib.asynccontextmanager
async def nchan(module: Path, *, deflates: bool) -> AsyncIterator[Server]:
    """Start nginx with one worker and ``module``; messages are posted over HTTP, in sequence."""
    (port,) = free_ports(1)
    with tempfile.TemporaryDirectory(prefix="newsfabric-nchan-") as name:
        file = _configured(Path(name), module, port, deflates)
        async with started(on_server_core(["nginx", "-c", str(file), "-e", "stderr"])) as process:
            try:
                await _listens(port)
                workers = await _children(process.pid)
                with _posting(port) as post:

                    async def send(topic: int, due_ns: int, size: int) -> None:
                        await post(f"/publish?topic={topic}", payload(due_ns, size), {})

                    yield Server(port, [process.pid, *workers], send)
            finally:
                # A killed master would leave its worker running.
                process.terminate()
                await process.wait()


def _configured(folder: Path, module: Path, port: int, deflates: bool) -> Path:
    # The worker runs as nobody if the master is root.
    folder.chmod(0o755)
    file = folder / "nginx.conf"
    deflate = "nchan_deflate_message_for_websocket on;" if deflates else ""
    file.write_text(_NGINX.format(folder=folder, module=module, port=port, deflate=deflate))
    return file


@contextlib.asynccontextmanager
async def mercure(command: Sequence[str]) -> AsyncIterator[Server]:
    """Start Mercure's own server, ``command``: no history, no login for readers. Messages are
    posted over HTTP, in sequence."""
    (port,) = free_ports(1)
    key = secrets.token_hex(32)
    token = jwt.encode({"mercure": {"publish": ["*"]}}, key, algorithm="HS256")
    head = {
        "Authorization": f"Bearer {token}",
        "Content-Type": "application/x-www-form-urlencoded",
    }
    words = [
        *(*command, "--addr", f"127.0.0.1:{port}", "--transport-url", "local://local"),
        *("--publisher-jwt-key", key, "--allow-anonymous"),
        # Other values would also end the connections of readers.
        *("--read-timeout", "0s", "--write-timeout", "0s"),
    ]
    # Its log is long: a line for each reader that connects.
    with tempfile.TemporaryFile() as log:
        async with started(on_server_core(words), log=log) as process:
            try:
                await _listens(port)
            except TimeoutError:
                log.seek(0)
                output = log.read()[-500:].decode(errors="replace")
                raise ConnectionError(f"Mercure doesn't listen: {output!r}") from None
            with _posting(port) as post:

                async def send(topic: int, due_ns: int, size: int) -> None:
                    form = {"topic": topic, "data": payload(due_ns, size)}
                    await post(MERCURE, urllib.parse.urlencode(form), head)

                yield Server(port, [process.pid], send)


@contextlib.contextmanager
def _posting(port: int) -> Iterator[Callable[[str, str, Mapping[str, str]], Awaitable[None]]]:
    """Yield a function that posts a body to a path, with headers; ConnectionError if refused."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_PATIENCE)

    def post(path: str, body: str, head: Mapping[str, str]) -> None:
        connection.request("POST", path, body, head)
        answer = connection.getresponse()
        answer.read()
        if answer.status not in range(200, 300):
            raise ConnectionError(f"a message is answered with {answer.status}")

    with contextlib.closing(connection):
        yield lambda *request: asyncio.to_thread(post, *request)


@contextlib.asynccontextmanager
async def newsfabric(engine: str) -> AsyncIterator[Server]:
    """Start a gateway with a broker of its own, to which messages are published as by a router.

    Its pushes contain more than the payload: topic, ids, position and time.
    """
    async with running_box(engine) as box:
        yield _of(box)


def _of(box: BenchBox) -> Server:
    async def send(topic: int, due_ns: int, size: int) -> None:
        await box.publish(topic_name(topic), text_bytes=size, due_ns=due_ns)

    return Server(box.port, box.pids, send)


def topic_name(topic: int | str) -> str:
    """Return the name in newsfabric of a topic of these benchmarks."""
    return f"metrics.bench-{topic}"


async def _children(pid: int) -> list[int]:
    """Return the children of a process, once it has some: nginx listens before its worker runs."""
    async with asyncio.timeout(_PATIENCE):
        while not (found := psutil.Process(pid).children()):  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.02)
    return [child.pid for child in found]


async def _listens(port: int) -> None:
    async with asyncio.timeout(_PATIENCE):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.02)
            else:
                writer.close()
                return
