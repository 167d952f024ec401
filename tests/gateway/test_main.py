"""The command line of a gateway."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gateway.__main__ import choose_engine
from newsfabric.errors import SetupError

ROOT = Path(__file__).resolve().parents[2]
ARGUMENTS = [
    "--name=box-1",
    "--region=oregon",
    "--broker=amqp://127.0.0.1:1/%2F",
    f"--topics={ROOT / 'topics.toml'}",
    "--store=memory:",
    "--port=0",
    "--admin-port=0",
]


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Provide a data plane's program."""
    program = tmp_path / "dataplane"
    program.touch(mode=0o755)
    monkeypatch.setenv("NEWSFABRIC_DATAPLANE", str(program))


@pytest.fixture
def missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the data plane's program missing."""
    monkeypatch.setenv("NEWSFABRIC_DATAPLANE", "/nowhere/newsfabric-dataplane")


@pytest.mark.usefixtures("built")
def test_the_native_engine_runs_unless_the_other_one_is_asked_for() -> None:
    assert choose_engine("auto") == "native"
    assert choose_engine("native") == "native"
    assert choose_engine("tornado") == "tornado"


@pytest.mark.usefixtures("missing")
def test_without_a_data_plane_auto_says_that_it_falls_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert choose_engine("auto") == "tornado"
    (line,) = caplog.messages
    assert "Tornado" in line
    assert "make dataplane" in line


@pytest.mark.usefixtures("missing")
def test_native_refuses_to_fall_back() -> None:
    with pytest.raises(SetupError, match="native engine isn't built"):
        choose_engine("native")


def gateway(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gateway", *ARGUMENTS, *arguments]
    return subprocess.run(
        command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=30, check=False
    )


def test_what_cant_be_done_is_one_line_and_exit_code_1() -> None:
    done = gateway(NEWSFABRIC_GATEWAY_ENGINE="native", NEWSFABRIC_DATAPLANE="/nowhere/at-all")
    assert done.returncode == 1
    assert "native engine isn't built" in done.stderr
    assert "Traceback" not in done.stderr


def test_where_proxy_headers_come_from_must_be_networks() -> None:
    done = gateway("--proxy-from=10.0.0.0/8", "--proxy-from=10.1.2.3/8")
    assert done.returncode == 2
    assert "10.1.2.3/8 has host bits set" in done.stderr


def test_an_engine_that_reads_no_proxy_headers_is_not_given_them() -> None:
    done = gateway("--proxy-from=10.0.0.0/8", "--engine=tornado")
    assert done.returncode == 1
    assert "--proxy-from needs the native engine" in done.stderr


def test_a_broker_s_url_with_a_login_is_refused_and_not_shown() -> None:
    done = gateway("--broker=amqp://box:s3cret@127.0.0.1:1/%2F", "--engine=tornado")
    assert done.returncode == 1
    assert "--broker: a URL holds no user and password" in done.stderr
    assert "s3cret" not in done.stderr
    assert "Traceback" not in done.stderr


def test_wrong_topics_are_named() -> None:
    done = gateway("--topics=/nowhere/topics.toml")
    assert done.returncode == 1
    assert "/nowhere/topics.toml" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("options", "code", "why"),
    [
        (["--token-cookie=session"], 2, "needs keys"),
        (["--token-keys=http://keys.example.org/"], 1, "an https URL"),
        (["--token-keys=/nowhere/keys.pem"], 1, "can't be used"),
    ],
)
def test_keys_that_cant_be_used_end_the_start_in_one_line(
    options: list[str], code: int, why: str
) -> None:
    done = gateway(*options)
    assert done.returncode == code
    assert why in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("origin", ["null", "news.example", "https://news.example/", "https://a;b"])
def test_an_origin_that_no_page_has_or_that_every_page_has_is_refused(origin: str) -> None:
    done = gateway(f"--origin={origin}", "--origin=https://news.example")
    assert done.returncode == 2
    assert f"--origin {origin}" in done.stderr
