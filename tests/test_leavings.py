"""tests/support/leavings.py: a test fails for objects that it leaves, and no other test does."""

from __future__ import annotations

import os
import resource
import signal
import socket
import sys
import threading
import weakref
from pathlib import Path

import leavings
import pytest
from authorities import Authority
from leavings import Before, certificates_forgotten, forget_failure

from newsfabric import metrics, tls
from newsfabric.settings import ServerFiles, TlsFiles
from newsfabric.tls import ClientTls, ServerTls


def test_who_leaves_nothing_gets_no_report() -> None:
    before = Before.now()
    ended = threading.Thread(target=lambda: None)
    ended.start()
    assert before.differences() == []


def test_a_thread_that_goes_on_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leavings, "GRACE_SECONDS", 0.0)
    before, ended = Before.now(), threading.Event()
    thread = threading.Thread(target=ended.wait, name="a watcher")
    thread.start()
    try:
        assert before.differences() == ["a thread goes on: a watcher"]
    finally:
        ended.set()
        thread.join()


def test_what_was_changed_is_reported_once_and_set_right(tmp_path: Path) -> None:
    before, folder = Before.now(), os.getcwd()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))
    os.chdir(tmp_path)
    os.environ["NEWSFABRIC_OF_A_TEST"] = "1"
    path = os.environ.pop("PATH")
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    assert before.differences() == [
        f"RLIMIT_NOFILE is {(soft - 1, hard)}, not {(soft, hard)}",
        f"the folder is {tmp_path}, not {folder}",
    ]
    assert before.differences() == []
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (soft, hard)
    assert (os.getcwd(), os.environ["PATH"]) == (folder, path)
    assert "NEWSFABRIC_OF_A_TEST" not in os.environ
    assert signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL


def test_certificates_of_a_test_are_looked_at_until_its_end(tmp_path: Path) -> None:
    def named() -> set[tuple[str, Path]]:
        return {(use, file) for use, held in tls._HELD.items() for file in held}

    before = named()
    one, another = (Authority(tmp_path, name).issue() for name in ("one", "another"))
    ServerTls(ServerFiles(one.certificate, one.key))
    with certificates_forgotten():
        ServerTls(ServerFiles(another.certificate, another.key))
        ClientTls(TlsFiles(authorities=another.certificate))
        more = {("server", another.certificate), ("authority", another.certificate)}
        assert named() - before == {("server", one.certificate)} | more
    assert named() - before == {("server", one.certificate)}
    found = metrics.exposition()[0].decode()
    assert 'seconds{use="server"}' in found
    # Shared fixtures may have read authorities before.
    had_authorities = any(use == "authority" for use, _ in before)
    assert ('seconds{use="authority"}' in found) is had_authorities


def test_what_a_failed_test_has_open_is_closed_without_a_word() -> None:
    def fails() -> None:
        opened = socket.socket()
        sockets.append(weakref.ref(opened))
        raise ValueError

    sockets: list[weakref.ref[socket.socket]] = []
    try:
        fails()
    except ValueError as exc:
        sys.last_exc = exc  # type: ignore[attr-defined]
    assert sockets[0]() is not None
    forget_failure()
    assert sockets[0]() is None
