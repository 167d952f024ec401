"""The address and login of a Cassandra store, from a URL and the environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from newsfabric.errors import ConfigError
from newsfabric.settings import Credentials
from newsfabric.store._cassandra_url import Address, login_from, parse_address


def test_an_address_has_hosts_a_keyspace_and_a_data_centre():
    assert parse_address("cassandra://10.0.1.5,db2:9142/news_fabric?dc=eu-west-1") == Address(
        (("10.0.1.5", 9042), ("db2", 9142)), "news_fabric", "eu-west-1"
    )


def test_an_address_is_shown_as_it_is_written():
    url = "cassandra://10.0.1.5:9042/newsfabric?dc=oregon"
    assert str(parse_address(url)) == url


@pytest.mark.parametrize("tls", ["system", "/etc/news fabric/ca.pem"])
def test_tls_trusts_the_machines_authorities_or_those_of_a_file(tls):
    address = parse_address(f"cassandra://a/k?dc=b&tls={tls}")
    assert address.tls == tls
    assert parse_address(str(address)) == address


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("cassandra:", "no HOST"),
        ("cassandra:///k?dc=a", "no HOST"),
        ("cassandra://a,,b/k?dc=a", "no HOST"),
        ("cassandra://a:x/k?dc=a", "no HOST"),
        ("cassandra://:1/k?dc=a", "no HOST"),
        ("cassandra://a:70000/k?dc=a", "no port"),
        ("cassandra://a?dc=a", "the keyspace is"),
        ("cassandra://a/K?dc=a", "the keyspace is"),
        ("cassandra://a/k;drop?dc=a", "the keyspace is"),
        ("cassandra://a/k", "dc is the name"),
        ("cassandra://a/k?dc=", "dc is the name"),
        ("cassandra://a/k?dc=o'r", "dc is the name"),
        ("cassandra://a/k?dc=a&tls=1", "tls is system or the full path"),
        ("cassandra://a/k?dc=a&tls=", "tls is system or the full path"),
        ("cassandra://a/k?dc=a&rack=1", "no option but dc"),
        ("cassandra://a/k?dc=a#x", "no option but dc"),
    ],
)
def test_a_wrong_url_is_a_config_error_that_says_what_to_write(url, why):
    with pytest.raises(ConfigError, match=rf"{why}.*write cassandra://HOST"):
        parse_address(url)


def test_a_password_in_the_url_is_refused_and_not_repeated():
    with pytest.raises(ConfigError, match="PASSWORD_FILE") as refused:
        parse_address("cassandra://cassie:s3cret@a/k?dc=a")
    assert "s3cret" not in str(refused.value)


def test_the_password_comes_from_a_file_or_the_environment(tmp_path: Path):
    file = tmp_path / "password"
    file.write_text("from file\n")
    user = {"NEWSFABRIC_CASSANDRA_USERNAME": "cassie"}
    assert login_from({}) is None
    assert login_from(user | {"NEWSFABRIC_CASSANDRA_PASSWORD": "plain"}) == Credentials(
        "cassie", "plain"
    )
    assert login_from(user | {"NEWSFABRIC_CASSANDRA_PASSWORD_FILE": str(file)}) == Credentials(
        "cassie", "from file"
    )
    with pytest.raises(ConfigError, match="PASSWORD_FILE"):
        login_from(user | {"NEWSFABRIC_CASSANDRA_PASSWORD_FILE": str(tmp_path / "none")})
