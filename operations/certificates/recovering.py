"""What may be believed of hosts' certificates where the folder that made them is lost. Pure.

Hosts show whom they trust, their certificates and their keys. Any one of them may be somebody
else's by now, and who has the authority's key signs what he likes: that a certificate is signed
says nothing of its names. So nothing is brought back unless all of it is right:

- all hosts trust the same authorities, or exactly those whose fingerprints were given;
- a certificate has the names and roles that the inventory gives to who shows it, and no others:
  `certs renew` would have the next authority sign whatever stands there;
- one of those authorities has signed it, and the key is its own.

One that has expired is brought, too: it is what its host has, and is made anew as any.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime
import json
from collections.abc import Collection, Mapping
from typing import Any, Final

from newsfabric import json_fields
from newsfabric.errors import ConfigError
from operations.certificates.checking import not_signed
from operations.certificates.making import (
    Pair,
    certificates_in,
    checked_name,
    describe,
    fingerprint,
    key_identifier,
)

#: A line for each, and a host that isn't ours may have many.
_MOST_NAMED: Final = 20


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who may show a certificate, by the inventory: all names that may be in it, and its roles."""

    names: frozenset[str]
    roles: frozenset[str]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What ``host`` shows, and by name who it is. ``repr`` hides keys, as :class:`Pair` does."""

    host: str
    trusts: bytes
    may_be: Mapping[str, Identity]
    shows: Mapping[str, Pair]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Believed:
    """The text of a ``ca.pem``, and pairs by the name of their folder."""

    bundle: bytes
    pairs: Mapping[str, Pair]


def shown(text: bytes) -> list[Shown]:
    """What ``recover-certificates.yml`` says, a list with an object for each host; ConfigError.

    ``host`` may have one of all its ``names`` for these ``roles``, and for each of ``logins``,
    users of its services, one of that name. ``trusts`` is a file in base64, and so are certificate
    and key of ``shows``, by name.
    """
    try:
        hosts = json.loads(text)
        if not isinstance(hosts, list) or not hosts:
            raise ValueError("it is no list of hosts")
        return [_shown(json_fields.mapping(one, "a host")) for one in hosts]
    except (KeyError, ValueError, TypeError, RecursionError) as exc:
        raise ConfigError(f"what hosts show can't be read: {exc}") from exc


def _shown(fields: dict[str, Any]) -> Shown:
    host = json_fields.text(fields, "host")
    own = Identity(
        names=frozenset(map(checked_name, fields["names"])), roles=frozenset(fields["roles"])
    )
    logins = {
        name: Identity(names=frozenset([name]), roles=frozenset(["client"]))
        for name in fields["logins"]
    }
    shows = json_fields.mapping(fields.get("shows"), "shows")
    return Shown(
        host=host,
        trusts=base64.b64decode(json_fields.text(fields, "trusts")),
        may_be={**logins, host: own},
        shows={
            name: Pair(base64.b64decode(certificate), base64.b64decode(key))
            for name, (certificate, key) in shows.items()
        },
    )


def believed(hosts: Collection[Shown], authorities: Collection[str]) -> Believed:
    """What is right of all that ``hosts`` show; ConfigError, which names what isn't.

    ``authorities`` are fingerprints as :func:`fingerprint` gives them; empty: all hosts, at least
    one, trust the same. Of two pairs of one name (a renewal that was interrupted) the later counts.
    """
    bundle = _bundle(hosts, authorities)
    wrong: list[str] = []
    pairs: dict[str, Pair] = {}
    ends: dict[str, datetime.datetime] = {}
    for one in hosts:
        for name, pair in one.shows.items():
            try:
                end = _judged(name, pair, one.may_be.get(name), bundle)
            except ConfigError as exc:
                wrong.append(f"{one.host} shows as {name}'s a certificate that isn't: {exc}")
                continue
            if name not in ends or end > ends[name]:
                ends[name], pairs[name] = end, pair
    if wrong:
        more = len(wrong) - _MOST_NAMED
        rest = [f"and {more} more"] if more > 0 else []
        raise ConfigError("; ".join([*wrong[:_MOST_NAMED], *rest]))
    return Believed(bundle=bundle, pairs=pairs)


def checked_bundle(bundle: bytes, authorities: Collection[str]) -> None:
    """ConfigError unless ``bundle`` has authorities, and exactly those of these fingerprints.

    ``authorities`` empty: any.
    """
    found = certificates_in(bundle, "ca.pem")
    if not all(describe(one).authority for one in found):
        raise ConfigError("that is no ca.pem of a host: not all in it are authorities")
    theirs = {fingerprint(one) for one in found}
    if authorities and theirs != set(authorities):
        raise ConfigError(
            f"it has the authorities {', '.join(sorted(theirs))}, "
            f"and {', '.join(sorted(authorities))} were named"
        )


def _bundle(hosts: Collection[Shown], authorities: Collection[str]) -> bytes:
    """What is trusted."""
    by_bundle: dict[frozenset[str], list[Shown]] = {}
    for one in hosts:
        try:
            checked_bundle(one.trusts, authorities)
            found = certificates_in(one.trusts, "ca.pem")
        except ConfigError as exc:
            raise ConfigError(f"ca.pem of {one.host}: {exc}") from exc
        by_bundle.setdefault(frozenset(map(fingerprint, found)), []).append(one)
    if len(by_bundle) > 1:
        groups = (
            f"{', '.join(sorted(prints))} by {', '.join(one.host for one in theirs)}"
            for prints, theirs in by_bundle.items()
        )
        raise ConfigError(
            "hosts don't trust the same authorities, so it isn't known which to believe: "
            f"{'; '.join(groups)} (SHA-256)"
        )
    return next(iter(hosts)).trusts


def _judged(name: str, pair: Pair, identity: Identity | None, bundle: bytes) -> datetime.datetime:
    """When it ends; ConfigError unless it is what ``identity`` says."""
    if identity is None:
        raise ConfigError("the inventory has no such certificate there")
    chain = certificates_in(pair.certificate, "it")
    says = describe(chain[0])
    others = [one for one in (says.subject, *says.names) if one not in identity.names]
    if others:
        raise ConfigError(
            f"it names {', '.join(others)}, which it isn't by the inventory (where it is, add it "
            "to newsfabric_certificate_names of the host)"
        )
    if not says.names or says.names[0] != name:
        raise ConfigError(f"it isn't {name}'s by its first name")
    roles = [one for one in says.roles if one not in identity.roles]
    if says.authority or roles or not says.roles:
        raise ConfigError(
            f"it is for {', '.join(roles or ['another use'])}, "
            f"and {', '.join(sorted(identity.roles))} is what it is to be for"
        )
    unsigned = not_signed(chain, says, certificates_in(bundle, "ca.pem"))
    if unsigned is not None:
        raise ConfigError(unsigned)
    if key_identifier(pair.key, "its key") != says.key:
        raise ConfigError("the private key is another certificate's")
    return says.ends
