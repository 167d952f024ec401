"""nginx, Caddy and HAProxy in front of a gateway, configured only with the gateway's address."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final

import pytest
from gateways import PATIENCE

from localfabric.nodes.ports import free_ports

# The folders where Debian puts programs that aren't for all users.
_PATH: Final = "/usr/sbin:/usr/local/sbin"

# Each has the port and the address behind it, and the settings that it needs to run in a folder, in
# the foreground, without root. HAProxy has no time limits by default.
_CONFIGURATIONS: Final = {
    "nginx": """
daemon off;
pid {folder}/pid;
error_log stderr;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{
        listen 127.0.0.1:{port};
        location / {{ proxy_pass http://{behind}; }}
    }}
}}
""",
    "caddy": """
{{
    admin off
    auto_https off
    storage file_system {folder}
}}
http://127.0.0.1:{port} {{
    reverse_proxy {behind}
}}
""",
    "haproxy": """
defaults
    mode http
    timeout connect 5s
    timeout client 60s
    timeout server 60s
frontend readers
    bind 127.0.0.1:{port}
    default_backend gateway
backend gateway
    server box {behind}
""",
}
_COMMANDS: Final = {
    "nginx": ("-p", "{folder}", "-e", "stderr", "-c", "{file}"),
    "caddy": ("run", "--adapter", "caddyfile", "--config", "{file}"),
    "haproxy": ("-db", "-f", "{file}"),
}
PROXIES: Final = tuple(_COMMANDS)


@contextlib.asynccontextmanager
async def in_front_of(behind: str, name: str, folder: Path) -> AsyncIterator[int]:
    """Run proxy ``name``, one of PROXIES, in front of ``behind`` (``host:port``); yield its port.

    Its files are in ``folder``. If it isn't installed, skip on a laptop and fail in CI.
    """
    (port,) = free_ports(1)
    text = _CONFIGURATIONS[name].format(behind=behind, folder=folder, port=port)
    async with started(name, text, folder, port):
        yield port


@contextlib.asynccontextmanager
async def started(name: str, configuration: str, folder: Path, port: int) -> AsyncIterator[None]:
    """Run proxy ``name`` with this ``configuration``, by which it listens on ``port``."""
    program = shutil.which(name) or shutil.which(name, path=_PATH)
    if program is None:
        missing = f"{name} isn't installed: scripts/setup proxies"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    fields = {"folder": str(folder), "file": str(folder / "configuration")}
    (folder / "configuration").write_text(configuration)
    arguments = [part.format(**fields) for part in _COMMANDS[name]]
    with (folder / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            program, *arguments, stdout=log, stderr=log, cwd=folder
        )
        try:
            await _until_open(port, process, (folder / "log").read_text)
            yield
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            await process.wait()


async def _until_open(
    port: int, process: asyncio.subprocess.Process, output: Callable[[], str]
) -> None:
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except ConnectionRefusedError:
                assert process.returncode is None, output()
                await asyncio.sleep(0.02)
            else:
                writer.close()
                return
