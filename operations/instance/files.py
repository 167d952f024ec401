"""The files that make a machine a box: from its description, its name and its secrets. Pure.

The image has units and settings in ``/opt/newsfabric/box`` that read these files (Ansible's role
``instance`` makes them of the same templates as ``site.yml``). Values that differ between boxes are
in the units' environment, under the names of the commands' options there.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Final

from newsfabric.errors import ConfigError
from newsfabric.topology import retail_definitions
from newsfabric.topology.roles import box_user, user_name
from operations.instance.description import Description

# The largest size of a value in Secrets Manager.
MAX_SECRET: Final = 65_536
TLS: Final = "/etc/newsfabric/tls"
#: The password of the store's login.
STORE: Final = "/etc/newsfabric/secrets/store"


@dataclasses.dataclass(frozen=True, slots=True)
class File:
    """A file to write. ``repr`` hides its text, which may be a secret."""

    path: str
    text: str = dataclasses.field(repr=False)
    mode: int = 0o644
    group: str = "root"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Secrets:
    """The secrets of this box, from Secrets Manager; ``repr`` hides them.

    ``box`` is its own password on the core and its broker, ``store`` the store's login, ``tls`` PEM
    texts: ``ca.pem``, and perhaps ``cert.pem`` with ``key.pem``.
    """

    box: str = dataclasses.field(repr=False)
    store: Mapping[str, str] = dataclasses.field(repr=False)
    tls: Mapping[str, str] = dataclasses.field(repr=False)


def password_in(text: str, name: str) -> str:
    """Return the password that is the whole text; ConfigError, which doesn't quote it."""
    word = text.strip()
    if not 8 <= len(word) <= 512 or not word.isascii() or not word.isprintable():
        raise ConfigError(f"secret {name}: a password of 8 to 512 characters belongs there")
    return word


def login_in(text: str, name: str) -> dict[str, str]:
    """Parse ``{"username": …, "password": …}``; ConfigError, which doesn't quote it."""
    found = _strings(text, name)
    if set(found) != {"username", "password"} or not found["username"].isidentifier():
        raise ConfigError(f'secret {name}: {{"username": …, "password": …}} belongs there')
    return {"username": found["username"], "password": password_in(found["password"], name)}


def pem_in(text: str, name: str) -> dict[str, str]:
    """Parse ``{"ca.pem": …}``, perhaps with ``cert.pem`` and ``key.pem``; ConfigError as above."""
    found = _strings(text, name)
    if set(found) not in ({"ca.pem"}, {"ca.pem", "cert.pem", "key.pem"}) or not all(
        value.startswith("-----BEGIN ") for value in found.values()
    ):
        raise ConfigError(f"secret {name}: ca.pem, and cert.pem with key.pem or neither, as PEM")
    return found


def shared_files(store: Mapping[str, str], tls: Mapping[str, str]) -> list[File]:
    """Return the files that all boxes share, and that may change while a box runs."""
    pem = [File(f"{TLS}/{name}", text) for name, text in tls.items() if name != "key.pem"]
    if "key.pem" in tls:
        pem.append(File(f"{TLS}/key.pem", tls["key.pem"], 0o640, "rabbitmq"))
    return [*pem, File(STORE, f"{store['password']}\n", 0o600)]


def files(description: Description, box: str, secrets: Secrets, cookie: str) -> list[File]:
    """Return all files that ``settle`` writes, in its order. ``box`` is the instance's id."""
    user = user_name("box", box)
    common = {
        "NEWSFABRIC_NAME": box,
        "NEWSFABRIC_REGION": description.region,
        "NEWSFABRIC_AMQP_USERNAME": user,
        "NEWSFABRIC_TLS_CA_FILE": f"{TLS}/ca.pem",
    }
    gateway = {
        "NEWSFABRIC_STORE": f"{description.store}&tls={TLS}/ca.pem",
        "NEWSFABRIC_CASSANDRA_USERNAME": secrets.store["username"],
        "NEWSFABRIC_PUBLIC_URL": description.public_url.replace("{box}", box),
        "NEWSFABRIC_CAPACITY": str(description.capacity),
        "NEWSFABRIC_DRAIN_SECONDS": str(description.drain_seconds),
        "NEWSFABRIC_ENDPOINTS": " ".join(f"{url}/endpoints.json" for url in description.frontdesks),
        "NEWSFABRIC_FRONTDESKS": " ".join(description.networks),
        "NEWSFABRIC_PROXY_FROM": " ".join(description.proxy_from),
        "NEWSFABRIC_ORIGINS": " ".join(description.origins),
        "NEWSFABRIC_TOKEN_KEYS": description.token_keys,
        "NEWSFABRIC_TOKEN_AUDIENCE": description.token_audience,
        "NEWSFABRIC_TOKEN_ISSUER": description.token_issuer,
    }
    agent = {
        "NEWSFABRIC_CORES": " ".join(description.core),
        "NEWSFABRIC_DRAIN_TIMEOUT": str(description.drain_seconds + 30),
    }
    definitions = retail_definitions([box_user(box)], {user: secrets.box})
    return [
        *shared_files(secrets.store, secrets.tls),
        File("/etc/newsfabric/secrets/box", f"{secrets.box}\n", 0o600),
        File("/etc/newsfabric/newsfabric-gateway.env", _environment(common | gateway)),
        File("/etc/newsfabric/newsfabric-retail-agent.env", _environment(common | agent)),
        File("/etc/rabbitmq/definitions.json", json.dumps(definitions), 0o640, "rabbitmq"),
        # The box's broker is in no cluster; the package's cookie would be the same on every box.
        File("/etc/newsfabric/secrets/cookie", cookie, 0o600),
    ]


def _environment(values: Mapping[str, str]) -> str:
    """Return the lines of an ``EnvironmentFile=``, without empty values. Values hold no quotes."""
    return "".join(f'{name}="{value}"\n' for name, value in values.items() if value)


def _strings(text: str, name: str) -> dict[str, str]:
    """Parse an object of texts. An error doesn't quote its content."""
    try:
        found = json.loads(text) if len(text) <= MAX_SECRET else None
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(isinstance(each, str) for each in found.values()):
        raise ConfigError(f"secret {name}: an object of texts belongs there")
    return found
