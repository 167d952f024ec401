"""AWS as simulated by moto, on loopback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.request import Request, urlopen

from moto.moto_server.threaded_moto_server import ThreadedMotoServer


@contextmanager
def moto_cloud() -> Iterator[str]:
    """Run an empty cloud, and yield its address.

    All servers of a process share their state, so this one is reset first.
    """
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        url = f"http://{host}:{port}"
        with urlopen(Request(f"{url}/moto-api/reset", method="POST"), timeout=60):
            pass
        yield url
    finally:
        server.stop()
