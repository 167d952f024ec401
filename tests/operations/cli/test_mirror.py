"""``newsfabric mirror`` before it begins: each error is one line."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from newsfabric.errors import ConfigError
from newsfabric.settings import Credentials, Fabric, Node, Region, dump_fabric
from operations.cli import cli
from operations.mirror.place import FROM_LOGIN, TO_LOGIN, check_apart, find_place


def node(name: str, port: int) -> Node:
    return Node(name, f"amqp://127.0.0.1:{port}/%2F", f"http://127.0.0.1:{port + 1}")


def region(name: str, port: int) -> Region:
    return Region(
        name=name,
        frontdesk_url=f"http://127.0.0.1:{port}",
        client=(node(f"{name}-client-1", port + 10),),
        core=(node(f"{name}-core-1", port + 20),),
    )


@pytest.fixture
def fabrics(tmp_path: Path) -> tuple[Path, Path]:
    paths = tmp_path / "fabric.json", tmp_path / "next.json"
    for path, port in zip(paths, (1100, 1200), strict=True):
        path.write_text(dump_fabric(Fabric((region("oregon", port), region("dublin", port + 50)))))
    return paths


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["mirror", *map(str, arguments)])


def test_a_fabric_is_not_mirrored_into_itself(fabrics: tuple[Path, Path], tmp_path: Path) -> None:
    topics = tmp_path / "topics.toml"
    topics.write_text('[[topic]]\npattern = "news.*"\n')
    result = run("--from", fabrics[0], "--to", fabrics[0], "--topics", topics)
    assert (result.exit_code, result.stderr) == (
        1,
        "error: --from and --to are the same fabric\n",
    )


def test_the_original_s_topics_must_be_known(fabrics: tuple[Path, Path]) -> None:
    result = run("--from", fabrics[0], "--to", fabrics[1])
    assert result.exit_code == 1
    assert result.stderr == (
        "error: the original's topics.toml isn't known: name it with --topics\n"
    )


def test_a_folder_that_is_no_world_is_reported(fabrics: tuple[Path, Path], tmp_path: Path) -> None:
    result = run("--from", tmp_path, "--to", fabrics[1])
    assert result.exit_code == 1
    assert result.stderr.startswith("error: no world in ")


def test_a_report_that_can_t_be_written_is_reported_before_it_begins(
    fabrics: tuple[Path, Path], tmp_path: Path
) -> None:
    topics = tmp_path / "topics.toml"
    topics.write_text('[[topic]]\npattern = "news.*"\n')
    report = tmp_path / "none" / "m.json"
    result = run(
        "--from", fabrics[0], "--to", fabrics[1], "--topics", topics, "--report", report
    )  # fmt: skip
    assert result.stderr == f"error: {report.parent} is no folder\n"


@pytest.mark.parametrize("share", ["-0.1", "1.1", "x"])
def test_a_share_is_from_0_to_1(fabrics: tuple[Path, Path], share: str) -> None:
    assert run("--from", fabrics[0], "--to", fabrics[1], "--share", share).exit_code == 2


@pytest.mark.parametrize("option", ["--share", "--seconds", "--every", "--patience", "--ramp"])
def test_what_is_no_number_is_reported(fabrics: tuple[Path, Path], option: str) -> None:
    result = run("--from", fabrics[0], "--to", fabrics[1], option, "nan")
    assert result.exit_code == 1
    assert result.stderr.startswith(f"error: {option[2:]}: not a number from 0 to ")


def test_a_token_is_not_sent_where_others_can_read_it(tmp_path: Path) -> None:
    paths = tmp_path / "fabric.json", tmp_path / "next.json"
    for path, port in zip(paths, (1100, 1200), strict=True):
        one = dataclasses.replace(region("oregon", port), frontdesk_url="http://oregon.example.com")
        path.write_text(dump_fabric(Fabric((one,))))
    topics = tmp_path / "topics.toml"
    topics.write_text('[[topic]]\npattern = "news.*"\n')
    words = ("--from", paths[0], "--to", paths[1], "--topics", topics, "--board-token-file", "x")
    refused = run(*words)
    assert refused.exit_code == 1
    assert refused.stderr.startswith("error: http://oregon.example.com/board.json: a token is sent")
    # The next option that is checked.
    meant = run(*words, "--token-over-http", "--report", tmp_path / "none" / "m.json")
    assert meant.stderr == f"error: {tmp_path / 'none'} is no folder\n"


def test_each_side_has_a_login_of_its_own(fabrics: tuple[Path, Path], tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("secret\n")
    environ = {
        "NEWSFABRIC_FROM_USERNAME": "mirror",
        "NEWSFABRIC_FROM_PASSWORD_FILE": str(password),
    }
    here = find_place(fabrics[0], region=None, topics=None, environ=environ, login=FROM_LOGIN)
    there = find_place(fabrics[1], region="dublin", topics=None, environ=environ, login=TO_LOGIN)
    assert here.credentials == Credentials("mirror", "secret")
    assert "secret" not in repr(here)
    assert there.credentials == Credentials("guest", "guest")
    assert here.endpoints_urls == (
        "http://127.0.0.1:1100/endpoints.json",
        "http://127.0.0.1:1150/endpoints.json",
    )
    assert there.endpoints_urls[0] == "http://127.0.0.1:1250/endpoints.json"
    assert there.client_urls == ("amqp://127.0.0.1:1260/%2F",)
    assert here.board_url == "http://127.0.0.1:1100/board.json"


def test_logins_in_urls_don_t_hide_that_it_is_one_broker(fabrics: tuple[Path, Path]) -> None:
    here = find_place(fabrics[0], region=None, topics=None, environ={}, login=FROM_LOGIN)
    urls = tuple(url.replace("//", "//user:secret@") for url in here.core_urls)
    with pytest.raises(ConfigError, match="the same fabric"):
        check_apart(here, dataclasses.replace(here, core_urls=urls, client_urls=()))
