"""``instance.json``: the contents that are accepted, and the errors that name a wrong field."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from newsfabric.errors import ConfigError
from operations.instance.description import INSTANCE_ID, parse, role_of
from tests.support.instances import DOCUMENT

LEAVES = st.none() | st.booleans() | st.integers() | st.text(max_size=20)
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)


def changed(**fields: Any) -> str:
    return json.dumps({**DOCUMENT, **fields})


def test_a_box_is_read_as_terraform_writes_it() -> None:
    found = parse(json.dumps(DOCUMENT))
    assert (found.region, found.group, found.hook) == (
        "oregon",
        "newsfabric-oregon-retail",
        "drain",
    )
    assert found.core == tuple(DOCUMENT["core"])
    assert (found.capacity, found.drain_seconds) == (50000, 120)
    assert found.secrets.boxes == "newsfabric-oregon/box/"
    assert found.token_keys == ""


def test_other_parts_say_what_they_are() -> None:
    assert role_of('{"role": "core"}') == "core"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("region", "Oregon"),
        ("group", ""),
        ("group", 'x"\nEVIL="1'),
        ("hook", None),
        ("core", []),
        ("core", ["amqps://me:secret@core/%2F"]),
        ("core", ["http://core/"]),
        ("store", "sqlite:news.db"),
        ("frontdesks", "https://one"),
        ("frontdesks", ["https://a b"]),
        ("public_url", "javascript:alert"),
        ("networks", ["everywhere"]),
        ("proxy_from", ["10.0.0.1/8"]),
        ("origins", ["https://a"] * 65),
        ("capacity", True),
        ("capacity", 0),
        ("drain_seconds", 7081),
        ("drain_seconds", "120"),
        ("secrets", ["tls"]),
        ("secrets", {"tls": "a", "store": "b", "boxes": "c d"}),
    ],
)
def test_what_is_wrong_is_named(field: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=rf"instance\.json: .*{field}"):
        parse(changed(**{field: value}))


@pytest.mark.parametrize("text", ["", "[]", "{", "1", '{"role": 3}'])
def test_what_is_no_description_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        role_of(text)


@given(field=st.sampled_from(sorted(DOCUMENT)), value=VALUES)
def test_no_value_makes_a_line_of_its_own(field: str, value: Any) -> None:
    try:
        found = parse(changed(**{field: value}))
    except ConfigError:
        return
    words = [
        found.group,
        found.store,
        found.public_url,
        *found.core,
        *found.frontdesks,
        *found.origins,
    ]
    assert not any(set(word) & set(' "\\\n\r') for word in words)


@pytest.mark.parametrize("name", ["i-0123456789abcdef0", "i-01234567"])
def test_an_instance_id_can_name_a_box(name: str) -> None:
    assert INSTANCE_ID.fullmatch(name)
