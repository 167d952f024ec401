"""fabric.json, names, and credentials that don't leak."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from newsfabric.errors import ConfigError
from newsfabric.settings import (
    SHOVEL_LOGIN,
    Credentials,
    Fabric,
    Node,
    ProxyCluster,
    Region,
    ServerFiles,
    TlsFiles,
    authorities_from,
    credentials_from,
    dump_fabric,
    file_from,
    is_name,
    load_fabric,
    login_variables,
    parse_fabric,
    server_files_from,
    shovel_credentials_from,
    without_login,
)


def node(name: str) -> Node:
    return Node(name, f"amqp://{name}:5672/%2F", f"http://{name}:15672")


def region(name: str, *, core: int = 1) -> Region:
    return Region(
        name=name,
        frontdesk_url=f"http://{name}",
        client=(node(f"{name}-client-1"),),
        core=tuple(node(f"{name}-core-{n}") for n in range(1, core + 1)),
    )


FABRIC = Fabric((region("oregon", core=3), region("dublin"), region("tokyo")))

# fabric.json


def test_a_fabric_comes_back_from_its_file(tmp_path: Path):
    path = tmp_path / "fabric.json"
    path.write_text(dump_fabric(FABRIC), encoding="utf-8")
    assert load_fabric(path) == FABRIC


def test_a_region_is_found_by_its_name_and_the_others_are_all_but_it():
    assert FABRIC.region("dublin") == region("dublin")
    assert [r.name for r in FABRIC.others("dublin")] == ["oregon", "tokyo"]


PROXY = ProxyCluster(name="harbor", nodes=(node("harbor-1"),), nearest="dublin")


def test_a_proxy_cluster_comes_back_too(tmp_path: Path):
    path = tmp_path / "fabric.json"
    known = dataclasses.replace(FABRIC, proxies=(PROXY,))
    path.write_text(dump_fabric(known), encoding="utf-8")
    assert load_fabric(path) == known


@pytest.mark.parametrize(
    "changed",
    [{"nearest": "mars"}, {"nodes": ()}, {"name": "tokyo"}, {"name": 7}, {"nodes": (node("A"),)}],
)
def test_a_proxy_cluster_that_cant_be_is_a_config_error(changed: dict[str, Any]):
    known = dataclasses.replace(FABRIC, proxies=(dataclasses.replace(PROXY, **changed),))
    with pytest.raises(ConfigError):
        parse_fabric(json.loads(dump_fabric(known)))


def test_the_nearest_of_the_others_comes_first_and_those_at_no_known_distance_last(tmp_path: Path):
    regions = [region("oregon"), region("osaka"), region("dublin"), region("tokyo")]
    regions[0] = dataclasses.replace(regions[0], distances={"tokyo": 90, "dublin": 130.5})
    path = tmp_path / "fabric.json"
    path.write_text(dump_fabric(Fabric(tuple(regions))), encoding="utf-8")
    assert [r.name for r in load_fabric(path).others("oregon")] == ["tokyo", "dublin", "osaka"]


@pytest.mark.parametrize(
    "distances",
    [{"mars": 1}, {"oregon": 1}, {"dublin": -1}, {"dublin": "1"}, {"dublin": True}, [], None],
)
def test_distances_that_are_none_are_a_config_error(distances: Any):
    document = json.loads(dump_fabric(FABRIC))
    document["regions"][0]["distances"] = distances
    with pytest.raises(ConfigError):
        parse_fabric(document)


def test_an_unknown_region_is_refused_with_the_known_ones():
    with pytest.raises(ConfigError, match=r"no region 'mars'.*oregon, dublin, tokyo"):
        FABRIC.region("mars")


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", None])
def test_a_file_that_is_missing_or_no_json_is_named(tmp_path: Path, content):
    path = tmp_path / "fabric.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=re.escape(str(path))):
        load_fabric(path)


def settings_document() -> dict[str, list[dict[str, object]]]:
    return json.loads(dump_fabric(Fabric((region("oregon"),))))


@pytest.mark.parametrize("broken", [None, [], 1, "regions", {}, {"regions": None}, {"regions": 1}])
def test_what_is_no_fabric_is_refused(broken):
    with pytest.raises(ConfigError, match=r"^fabric\.json: missing or unknown field"):
        parse_fabric(broken)


def test_a_fabric_needs_a_region():
    with pytest.raises(ConfigError, match="no region"):
        parse_fabric({"regions": []})


@pytest.mark.parametrize("field", ["name", "frontdesk_url", "client", "core"])
def test_a_region_needs_each_of_its_fields(field):
    broken = settings_document()
    del broken["regions"][0][field]
    with pytest.raises(ConfigError, match=field):
        parse_fabric(broken)


@pytest.mark.parametrize("field", ["name", "amqp_url", "management_url"])
def test_a_node_needs_each_of_its_fields_as_text(field):
    for value in (..., 5672, None, ["x"]):
        broken = settings_document()
        fields = broken["regions"][0]["core"][0]
        if value is ...:
            del fields[field]
        else:
            fields[field] = value
        with pytest.raises(ConfigError, match=r"fabric\.json: "):
            parse_fabric(broken)


def test_a_node_with_a_field_too_many_is_refused():
    broken = settings_document()
    broken["regions"][0]["core"][0]["password"] = "secret"
    with pytest.raises(ConfigError, match="password"):
        parse_fabric(broken)


@pytest.mark.parametrize("role", ["client", "core"])
def test_a_region_needs_nodes_of_both_kinds(role):
    broken = settings_document()
    broken["regions"][0][role] = []
    with pytest.raises(ConfigError, match="'oregon' needs client and core nodes"):
        parse_fabric(broken)


def test_a_name_can_be_there_only_once():
    broken = settings_document()
    broken["regions"][0]["core"][0]["name"] = "oregon-client-1"
    with pytest.raises(ConfigError, match="'oregon-client-1' is there twice"):
        parse_fabric(broken)


@pytest.mark.parametrize("name", ["", "Oregon", "us.west", "-a", "ä", "a b", "a" * 64, "a\n"])
def test_a_bad_name_is_refused(name):
    assert not is_name(name)
    broken = settings_document()
    broken["regions"][0]["name"] = name
    with pytest.raises(ConfigError, match="is no name"):
        parse_fabric(broken)


@pytest.mark.parametrize("name", ["a", "0", "us-west-2", "oregon-retail-1", "a" * 63])
def test_a_good_name_is_taken(name):
    assert is_name(name)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["regions", "name", "frontdesk_url", "client", "core"]), inner
        )
    ),
    max_leaves=12,
)


@given(json_values | st.fixed_dictionaries({"regions": json_values}))
def test_whatever_the_file_says_it_is_a_fabric_or_a_config_error(odd):
    try:
        fabric = parse_fabric(odd)
    except ConfigError as exc:
        fabric = exc
    assert isinstance(fabric, Fabric | ConfigError)


# Credentials


def test_without_a_word_it_is_the_guest():
    assert credentials_from({}) == Credentials("guest", "guest")


def test_the_environment_names_user_and_password():
    environ = {"NEWSFABRIC_AMQP_USERNAME": "router", "NEWSFABRIC_AMQP_PASSWORD": "s3cret"}
    assert credentials_from(environ) == Credentials("router", "s3cret")


def test_a_password_file_goes_before_a_password(tmp_path: Path):
    path = tmp_path / "password"
    path.write_text("from-file\n", encoding="utf-8")
    environ = {
        "NEWSFABRIC_AMQP_USERNAME": "router",
        "NEWSFABRIC_AMQP_PASSWORD": "from-environment",
        "NEWSFABRIC_AMQP_PASSWORD_FILE": str(path),
    }
    assert credentials_from(environ) == Credentials("router", "from-file")


@pytest.mark.parametrize("content", [None, b"\xff"])
def test_a_password_file_that_cannot_be_read_is_a_config_error(tmp_path: Path, content):
    path = tmp_path / "password"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match="NEWSFABRIC_AMQP_PASSWORD_FILE"):
        credentials_from({"NEWSFABRIC_AMQP_PASSWORD_FILE": str(path)})


def test_a_file_without_a_slash_is_a_credential_that_systemd_passes(tmp_path):
    (tmp_path / "amqp-password").write_text("s3cret\n", encoding="utf-8")
    environ = {
        "CREDENTIALS_DIRECTORY": str(tmp_path),
        "NEWSFABRIC_AMQP_USERNAME": "router",
        "NEWSFABRIC_AMQP_PASSWORD_FILE": "amqp-password",
    }
    assert credentials_from(environ) == Credentials("router", "s3cret")
    assert file_from(environ, "NEWSFABRIC_TLS_CA_FILE") is None


@pytest.mark.parametrize("name", ["amqp-password", "", ".."])
@pytest.mark.parametrize("folder", [{}, {"CREDENTIALS_DIRECTORY": ""}])
def test_without_systemd_it_is_a_config_error(name, folder):
    with pytest.raises(ConfigError, match=r"NEWSFABRIC_TLS_KEY_FILE: .* no credential"):
        file_from({**folder, "NEWSFABRIC_TLS_KEY_FILE": name}, "NEWSFABRIC_TLS_KEY_FILE")


def test_the_environment_names_whom_a_process_trusts_and_what_it_shows():
    environ = {
        "NEWSFABRIC_AMQP_USERNAME": "router.oregon",
        "NEWSFABRIC_AMQP_CERT_FILE": "/tls/router.pem",
        "NEWSFABRIC_AMQP_KEY_FILE": "router-key",
        "NEWSFABRIC_TLS_CA_FILE": "/tls/ca.pem",
        "NEWSFABRIC_TLS_CERT_FILE": "/tls/cert.pem",
        "NEWSFABRIC_TLS_KEY_FILE": "/tls/key.pem",
        "CREDENTIALS_DIRECTORY": "/run/credentials/router",
    }
    authorities = Path("/tls/ca.pem")
    assert authorities_from(environ) == authorities
    assert server_files_from(environ) == ServerFiles(Path("/tls/cert.pem"), Path("/tls/key.pem"))
    assert credentials_from(environ).tls == TlsFiles(
        authorities=authorities,
        certificate=Path("/tls/router.pem"),
        key=Path("/run/credentials/router/router-key"),
    )
    shovel = {
        "NEWSFABRIC_SHOVEL_USERNAME": "shovel.oregon",
        "NEWSFABRIC_SHOVEL_CERT_FILE": "/tls/shovel.pem",
        "NEWSFABRIC_SHOVEL_KEY_FILE": "/tls/shovel-key.pem",
    }
    assert shovel_credentials_from(environ | shovel).tls == TlsFiles(
        authorities=authorities,
        certificate=Path("/tls/shovel.pem"),
        key=Path("/tls/shovel-key.pem"),
    )
    assert server_files_from({}) is None


@pytest.mark.parametrize(
    ("environ", "why"),
    [
        ({"NEWSFABRIC_AMQP_CERT_FILE": "/a", "NEWSFABRIC_AMQP_USERNAME": "u"}, "both or none"),
        ({"NEWSFABRIC_AMQP_KEY_FILE": "/a", "NEWSFABRIC_AMQP_USERNAME": "u"}, "both or none"),
        (
            {"NEWSFABRIC_AMQP_CERT_FILE": "/a", "NEWSFABRIC_AMQP_KEY_FILE": "/b"},
            "NEWSFABRIC_AMQP_USERNAME: write the common name",
        ),
    ],
)
def test_half_of_a_certificate_is_a_config_error(environ, why):
    with pytest.raises(ConfigError, match=why):
        credentials_from(environ)


def test_what_a_shovel_shows_is_no_credential_of_its_keeper(tmp_path):
    environ = {
        "CREDENTIALS_DIRECTORY": str(tmp_path),
        "NEWSFABRIC_SHOVEL_USERNAME": "shovel.oregon",
        "NEWSFABRIC_SHOVEL_CERT_FILE": "/tls/shovel.pem",
        "NEWSFABRIC_SHOVEL_KEY_FILE": "shovel-key",
    }
    with pytest.raises(ConfigError, match="NEWSFABRIC_SHOVEL_KEY_FILE: 'shovel-key' is no path"):
        shovel_credentials_from(environ)


def test_a_url_with_a_login_is_refused_without_being_shown():
    assert without_login("amqps://host:5671/%2F", "--broker") == "amqps://host:5671/%2F"
    for url in ("amqp://user:s3cret@host/%2F", "https://user@host", "amqp://@host"):
        with pytest.raises(ConfigError, match="--broker: a URL holds no user") as refused:
            without_login(url, "--broker")
        assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize("field", ["amqp_url", "management_url", "frontdesk_url"])
def test_a_fabric_holds_no_login(field):
    document = json.loads(dump_fabric(FABRIC))
    region = document["regions"][0]
    place = region if field == "frontdesk_url" else region["core"][0]
    place[field] = place[field].replace("//", "//user:s3cret@")
    with pytest.raises(ConfigError, match="holds no user and password") as refused:
        parse_fabric(document)
    assert "s3cret" not in str(refused.value)


def test_a_password_is_not_in_the_repr():
    assert "s3cret" not in repr(Credentials("router", "s3cret"))


def test_shovels_log_in_as_somebody_else_if_a_user_is_named(tmp_path):
    path = tmp_path / "password"
    path.write_text("s3cret\n", encoding="utf-8")
    keeper = {"NEWSFABRIC_AMQP_USERNAME": "keeper.oregon", "NEWSFABRIC_AMQP_PASSWORD": "word"}
    assert shovel_credentials_from(keeper) == Credentials("keeper.oregon", "word")
    variables = keeper | login_variables("shovel.oregon", path, SHOVEL_LOGIN)
    assert shovel_credentials_from(variables) == Credentials("shovel.oregon", "s3cret")
    assert credentials_from(variables) == Credentials("keeper.oregon", "word")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("amqp://127.0.0.1:5672/%2F", "amqp://us%40er:p%3Aa%2Fs@127.0.0.1:5672/%2F"),
        ("amqp://old:pw@host/vhost", "amqp://us%40er:p%3Aa%2Fs@host/vhost"),
        (
            "amqps://[::1]:5671/%2F?heartbeat=5",
            "amqps://us%40er:p%3Aa%2Fs@[::1]:5671/%2F?heartbeat=5",
        ),
    ],
)
def test_credentials_go_into_a_url_escaped_and_replace_what_was_there(url, expected):
    assert Credentials("us@er", "p:a/s").in_url(url) == expected
