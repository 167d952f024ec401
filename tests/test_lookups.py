"""Lookups that a silent name server should answer don't delay other lookups, in a real process."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# A server that takes queries and answers none; beside it a name of /etc/hosts. Only this process
# sees the two files that are mounted.
PLAY = """
import asyncio, os, socket, subprocess, sys, time
from newsfabric.process import service

folder = sys.argv[1]
files = {"resolv.conf": "nameserver 127.0.0.99\\n", "hosts": "127.0.0.1 broker.test\\n"}
for name, text in files.items():
    with open(f"{folder}/{name}", "w") as file:
        file.write(text)
    subprocess.run(["mount", "--bind", f"{folder}/{name}", f"/etc/{name}"], check=True)

async def main(stop):
    loop = asyncio.get_running_loop()
    for n in range(20):
        asyncio.ensure_future(loop.getaddrinfo(f"away-{n}.test", 5672))
    await loop.run_in_executor(None, silent.recvfrom, 512)
    began = time.monotonic()
    await loop.getaddrinfo("broker.test", 5672)
    print(time.monotonic() - began, flush=True)
    os._exit(0)

silent = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
silent.bind(("127.0.0.99", 53))
service.run(main, name="lookups", log_level="ERROR")
"""


def test_twenty_names_that_nobody_answers_for_hold_up_no_other(tmp_path: Path) -> None:
    if shutil.which("unshare") is None or subprocess.run(["unshare", "--mount", "true"]).returncode:
        pytest.skip("only root may give a process a name server of its own")
    words = ["unshare", "--mount", sys.executable, "-c", PLAY, str(tmp_path)]
    environ = {name: text for name, text in os.environ.items() if name != "UV_THREADPOOL_SIZE"}
    done = subprocess.run(
        words, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    # A lookup waits for five seconds or more for a name server.
    assert float(done.stdout) < 4.0
