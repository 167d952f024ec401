"""Recovered hosts' certificates: those that fit the inventory are believed, and no others."""

from __future__ import annotations

import base64
import datetime
import json
from collections.abc import Sequence
from typing import Any, Final

import pytest

from newsfabric.errors import ConfigError
from operations.certificates.making import CertificatePair, Role, make_authority, make_certificate
from operations.certificates.recovering import Believed, believed, shown

NOW: Final = datetime.datetime(2026, 7, 1, tzinfo=datetime.UTC)
DAY: Final = datetime.timedelta(days=1)
CORE, STORE, USER = "oregon-core-1", "oregon-store-1", "router.oregon"
OURS: Final = make_authority("ours", now=NOW, lifetime=3650 * DAY)


def pair(
    *names: str, roles: Sequence[Role] = ("server",), by: CertificatePair = OURS, days: int = 90
) -> CertificatePair:
    return make_certificate(by, names, roles, now=NOW, lifetime=days * DAY)


def host(name: str, trusts: CertificatePair = OURS, **shows: CertificatePair) -> dict[str, Any]:
    """Return the playbook's output about a core node, or about a store node."""
    store = "store" in name
    return {
        "host": name,
        "names": [name, "10.1.1.21"],
        "roles": ["server", "client"] if store else ["server"],
        "logins": [] if store else [USER],
        "trusts": coded(trusts.certificate),
        "shows": {
            folder: [coded(one.certificate), coded(one.key)] for folder, one in shows.items()
        },
    }


def coded(file: bytes) -> str:
    return base64.b64encode(file).decode()


def judged(*hosts: dict[str, Any], authorities: Sequence[str] = ()) -> Believed:
    return believed(shown(json.dumps(hosts).encode()), authorities)


def test_hosts_and_their_users_have_what_they_are() -> None:
    own, user = pair(CORE, "10.1.1.21"), pair(USER, roles=["client"])
    store = pair(STORE, "10.1.1.21", roles=["server", "client"])
    found = judged(host(CORE, **{CORE: own, USER: user}), host(STORE, **{STORE: store}))
    assert found == Believed(bundle=OURS.certificate, pairs={CORE: own, USER: user, STORE: store})


def test_of_two_pairs_of_a_user_the_later_counts() -> None:
    old, new = pair(USER, roles=["client"], days=30), pair(USER, roles=["client"], days=60)
    for first, second in ((old, new), (new, old)):
        found = judged(host(CORE, **{USER: first}), host("oregon-core-2", **{USER: second}))
        assert found.pairs == {USER: new}


def test_what_has_expired_is_what_the_host_has() -> None:
    own = pair(CORE, days=1)
    assert judged(host(CORE, **{CORE: own})).pairs == {CORE: own}


STOLEN: Final = {
    "another host's name": (
        {CORE: pair(CORE, STORE)},
        f"it names {STORE}, which it isn't by the inventory",
    ),
    "another host's certificate": (
        {CORE: pair(STORE)},
        f"it names {STORE}, {STORE}, which it isn't by the inventory",
    ),
    "its address first": ({CORE: pair("10.1.1.21", CORE)}, f"it isn't {CORE}'s by its first name"),
    "a host's for a user": ({CORE: pair(CORE, roles=["server", "client"])}, "it is for client"),
    "a user's for a host": ({USER: pair(USER)}, "it is for server"),
    "another user's": (
        {USER: pair("keeper.oregon", roles=["client"])},
        "it names keeper.oregon, keeper.oregon, which it isn't",
    ),
    "a user whom the host has not": (
        {"keeper.oregon": pair("keeper.oregon", roles=["client"])},
        "the inventory has no such certificate there",
    ),
    "another authority's": (
        {CORE: pair(CORE, by=make_authority("other", now=NOW, lifetime=DAY))},
        "no trusted authority stands behind it",
    ),
    "another's key": (
        {CORE: CertificatePair(pair(CORE).certificate, pair(CORE).key)},
        "the private key is another certificate's",
    ),
    "no certificate": (
        {CORE: CertificatePair(b"none", b"none")},
        "it: no certificate in PEM there",
    ),
    "no key": ({CORE: CertificatePair(pair(CORE).certificate, b"none")}, "its key: no private key"),
    "an authority": ({CORE: make_authority(CORE, now=NOW, lifetime=DAY)}, "it names "),
}


@pytest.mark.parametrize("case", STOLEN)
def test_what_a_host_is_not_is_refused_with_all_that_hosts_show(case: str) -> None:
    shows, why = STOLEN[case]
    [name] = shows
    with pytest.raises(ConfigError) as refused:
        judged(host("oregon-core-2"), host(CORE, **shows))
    assert str(refused.value).startswith(
        f"{CORE} shows as {name}'s a certificate that isn't: {why}"
    )


def test_all_that_is_wrong_is_named_at_once_and_not_without_end() -> None:
    hosts = [host(f"oregon-core-{n}", **{f"oregon-core-{n}": pair(STORE)}) for n in range(23)]
    with pytest.raises(ConfigError) as refused:
        judged(*hosts)
    assert str(refused.value).count(" shows as ") == 20
    assert str(refused.value).endswith("; and 3 more")


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", "[1]", '[{"host": 1}]', '[{"host": "a"}]', "[" * 100_000]
    + [json.dumps([{**host(CORE), "shows": {CORE: bad}}]) for bad in (None, ["a"], ["a", "é"])],
)
def test_what_is_no_list_of_hosts_is_an_error_in_one_line(text: str) -> None:
    with pytest.raises(ConfigError, match="what hosts show can't be read"):
        shown(text.encode())
