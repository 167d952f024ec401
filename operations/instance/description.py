"""``instance.json``: the configuration of a machine at its boot. Pure.

It holds no secret, only names of secrets. It comes from user data, which only people with rights on
launch templates can write; still each word is checked, since root writes it into files.
"""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Any, Final
from urllib.parse import urlsplit

from newsfabric.errors import ConfigError
from newsfabric.http.networks import parse_networks
from newsfabric.numbers import is_whole
from newsfabric.settings import is_name, without_login

#: More than Terraform ever writes: user data has 16 KiB at most.
MAX_BYTES: Final = 64 << 10
_MANY: Final = 64
# A word in a line NAME="…" of a unit's environment.
_WORD: Final = re.compile(r"[!#-\[\]-~]{1,1024}", re.ASCII)
_SECRET: Final = re.compile(r"[A-Za-z0-9/_+=.@-]{1,200}", re.ASCII)
# An EC2 instance's id, which is also the box's name.
INSTANCE_ID: Final = re.compile(r"i-[0-9a-f]{8,17}", re.ASCII)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SecretNames:
    """Names in Secrets Manager of a box's secrets. A box's own is ``boxes`` followed by its id."""

    tls: str
    store: str
    boxes: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """A box of the autoscaling group ``group``. URLs hold no login; lists keep their order.

    ``{box}`` in ``public_url`` stands for the instance's id.
    """

    region: str
    group: str
    hook: str
    core: tuple[str, ...]
    store: str
    frontdesks: tuple[str, ...]
    public_url: str
    networks: tuple[str, ...]
    proxy_from: tuple[str, ...]
    origins: tuple[str, ...]
    token_keys: str
    token_audience: str
    token_issuer: str
    capacity: int
    drain_seconds: int
    secrets: SecretNames


def role_of(text: str) -> str:
    """Return the part of the fabric that the machine is. ConfigError if there is none."""
    role = _document(text).get("role")
    if not isinstance(role, str):
        raise ConfigError("instance.json: no role")
    return role


def parse(text: str) -> Description:
    """Parse the box in ``instance.json``; ConfigError names the field that is wrong."""
    found = _document(text)
    region = _text(found, "region")
    if not is_name(region):
        raise ConfigError(f"instance.json: region: {region!r} is no name")
    proxy_from, networks = _list(found, "proxy_from"), _list(found, "networks")
    try:
        parse_networks([*networks, *proxy_from])
    except ValueError as exc:
        raise ConfigError(f"instance.json: networks, proxy_from: {exc}") from exc
    return Description(
        region=region,
        group=_text(found, "group"),
        hook=_text(found, "hook"),
        core=_urls(found, "core", "amqps", "amqp"),
        store=_url(_text(found, "store"), "store", "cassandra"),
        frontdesks=_urls(found, "frontdesks", "https", "http"),
        public_url=_url(_text(found, "public_url"), "public_url", "https", "http"),
        networks=networks,
        proxy_from=proxy_from,
        origins=_list(found, "origins"),
        token_keys=_text(found, "token_keys", empty=True),
        token_audience=_text(found, "token_audience", empty=True),
        token_issuer=_text(found, "token_issuer", empty=True),
        capacity=_whole(found, "capacity", 1, 10_000_000),
        drain_seconds=_whole(found, "drain_seconds", 1, 7080),
        secrets=_secrets(found),
    )


def _document(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as exc:
        raise ConfigError(f"instance.json: {exc}") from exc
    if not isinstance(found, dict):
        raise ConfigError("instance.json: no object")
    return found


def _secrets(found: dict[str, Any]) -> SecretNames:
    names = found.get("secrets")
    if not isinstance(names, dict):
        raise ConfigError("instance.json: secrets: no object")
    texts = {key: names.get(key) for key in ("tls", "store", "boxes")}
    for key, name in texts.items():
        if not isinstance(name, str) or _SECRET.fullmatch(name) is None:
            raise ConfigError(f"instance.json: secrets: {key} is no secret's name")
    return SecretNames(**{key: str(name) for key, name in texts.items()})


def _text(found: dict[str, Any], field: str, *, empty: bool = False) -> str:
    return _word(found.get(field, "" if empty else None), field, empty=empty)


def _word(value: object, field: str, *, empty: bool = False) -> str:
    if isinstance(value, str) and (_WORD.fullmatch(value) or (empty and not value)):
        return value
    raise ConfigError(
        f"instance.json: {field}: a word without blanks, quotes and backslashes belongs there"
    )


def _list(found: dict[str, Any], field: str) -> tuple[str, ...]:
    values = found.get(field, [])
    if not isinstance(values, list) or len(values) > _MANY:
        raise ConfigError(f"instance.json: {field}: a list of at most {_MANY} belongs there")
    return tuple(_word(value, field) for value in values)


def _urls(found: dict[str, Any], field: str, *schemes: str) -> tuple[str, ...]:
    values = _list(found, field)
    if not values:
        raise ConfigError(f"instance.json: {field}: one at least")
    return tuple(_url(value, field, *schemes) for value in values)


def _url(value: str, field: str, *schemes: str) -> str:
    without_login(value, f"instance.json: {field}")
    if urlsplit(value).scheme not in schemes:
        raise ConfigError(f"instance.json: {field}: no URL of {' or '.join(schemes)}")
    return value


def _whole(found: dict[str, Any], field: str, least: int, most: int) -> int:
    value = found.get(field)
    if not is_whole(value, least, most):
        raise ConfigError(f"instance.json: {field}: a whole number from {least} to {most}")
    return value
