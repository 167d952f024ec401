"""The contents that hosts.json may have, and the reasons to refuse it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import orjson
import pytest

from newsfabric.errors import ConfigError
from operations.hosts.described import Host, parse_hosts, read_hosts


def hosts_document(**changes: Any) -> dict[str, Any]:
    return {
        "ssh": ["ssh", "-F", "/a/config"],
        "hosts": [
            {"name": "oregon-core-1", "place": "oregon", "part": "core"},
            {"name": "dublin-core-1", "place": "dublin", "part": "core"},
            {"name": "tokyo-proxy-1", "place": "tokyo", "part": "proxy"},
        ],
        "frontdesks": {"oregon": "http://o", "dublin": "http://d"},
        "commands": {"cut": ["cutter"]},
    } | changes


def test_a_folder_without_hosts_json_describes_none(tmp_path: Path) -> None:
    assert read_hosts(tmp_path) is None
    assert read_hosts(tmp_path / "no such folder") is None


def test_hosts_are_read_as_they_are_written(tmp_path: Path) -> None:
    (tmp_path / "hosts.json").write_bytes(orjson.dumps(hosts_document()))
    found = read_hosts(tmp_path)
    assert found is not None
    assert found.hosts[0] == Host("oregon-core-1", "oregon", "core")
    assert found.places == ["oregon", "dublin", "tokyo"]
    assert found.commands == {"cut": ("cutter",)}


def test_there_is_a_link_between_each_two_places() -> None:
    assert parse_hosts(Path("/f"), hosts_document()).links() == {
        "oregon-dublin-link": ("oregon", "dublin"),
        "oregon-tokyo-link": ("oregon", "tokyo"),
        "dublin-tokyo-link": ("dublin", "tokyo"),
    }


def test_the_frontdesk_of_the_region_asked_for_comes_first() -> None:
    hosts = parse_hosts(Path("/f"), hosts_document())
    assert hosts.frontdesk_urls(None) == ["http://o", "http://d"]
    assert hosts.frontdesk_urls("dublin") == ["http://d", "http://o"]
    with pytest.raises(ConfigError, match=r"no frontdesk in tokyo \(there is: oregon, dublin\)"):
        hosts.frontdesk_urls("tokyo")
    with pytest.raises(ConfigError, match=r"no frontdesk in hosts\.json"):
        parse_hosts(Path("/f"), hosts_document(frontdesks={})).frontdesk_urls(None)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"ssh": []}, "ssh must be a program and its words"),
        ({"ssh": ["ssh", 1]}, "ssh must be a program and its words"),
        ({"hosts": "all"}, "hosts"),
        ({"hosts": [{"name": "-oProxyCommand=x", "place": "a", "part": "core"}]}, "is no name"),
        ({"hosts": [{"name": "a", "place": "a", "part": "shop"}]}, "part must be one of client"),
        ({"hosts": [{"name": "a", "place": "a", "part": "core"}] * 2}, "two hosts have one name"),
        ({"commands": {"explode": ["x"]}}, "commands: no explode"),
        ({"frontdesks": {"oregon": 1}}, "oregon must be text"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, changes: dict[str, Any], reason: str) -> None:
    (tmp_path / "hosts.json").write_bytes(orjson.dumps(hosts_document(**changes)))
    with pytest.raises(ConfigError, match=rf"hosts\.json: .*{reason}"):
        read_hosts(tmp_path)


def test_what_is_no_json_is_an_error_of_ours(tmp_path: Path) -> None:
    (tmp_path / "hosts.json").write_text("{")
    with pytest.raises(ConfigError, match=r"hosts\.json"):
        read_hosts(tmp_path)


def test_a_file_that_others_may_have_written_is_not_obeyed(tmp_path: Path) -> None:
    file = tmp_path / "hosts.json"
    file.write_bytes(orjson.dumps(hosts_document()))
    file.chmod(0o666)
    with pytest.raises(ConfigError, match="isn't yours alone"):
        read_hosts(tmp_path)
    file.chmod(0o664)
    assert read_hosts(tmp_path) is not None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_file_of_somebody_else_is_not_obeyed(tmp_path: Path) -> None:
    file = tmp_path / "hosts.json"
    file.write_bytes(orjson.dumps(hosts_document()))
    os.chown(file, 65534, 65534)
    with pytest.raises(ConfigError, match="isn't yours alone"):
        read_hosts(tmp_path)
