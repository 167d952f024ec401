"""Checks of the certificates that hosts show, after the folder that made them is lost. Pure.

Hosts show the authorities that they trust, their certificates and their keys. Any host may be an
attacker's by now, and an attacker with the authority's key can sign any name: a signature doesn't
prove the names. So nothing is restored unless all of this is right:

- all hosts trust the same authorities, or exactly those whose fingerprints were given;
- a certificate has only names and roles that the inventory gives to the host that shows it:
  `certs renew` would have the next authority sign any name in it;
- one of those authorities has signed it, and the key is its own.

An expired certificate is restored, too: its host uses it, and it is renewed as any other.
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
    CertificatePair,
    certificates_in,
    checked_name,
    describe,
    fingerprint,
    key_identifier,
)

#: Bound of the errors, one line each: a host that isn't ours may show many certificates.
_MOST_NAMED: Final = 20


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CertificateIdentity:
    """The names and roles that the inventory allows in a certificate."""

    names: frozenset[str]
    roles: frozenset[str]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """The certificates that ``host`` shows, and the identities that it may have, by name. ``repr``
    hides keys, as :class:`CertificatePair` does."""

    host: str
    trusts: bytes
    may_be: Mapping[str, CertificateIdentity]
    shows: Mapping[str, CertificatePair]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Believed:
    """The text of a ``ca.pem``, and pairs by the name of their folder."""

    bundle: bytes
    pairs: Mapping[str, CertificatePair]


def shown(text: bytes) -> list[Shown]:
    """Parse the output of ``recover-certificates.yml``: a list, an object per host; or ConfigError.

    A certificate of ``host`` may have any of its ``names`` and ``roles``; for each of ``logins``,
    users of its services, a client certificate may have that name alone. ``trusts`` is a file in
    base64, and so are certificate and key of ``shows``, by name.
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
    own = CertificateIdentity(
        names=frozenset(map(checked_name, fields["names"])), roles=frozenset(fields["roles"])
    )
    logins = {
        name: CertificateIdentity(names=frozenset([name]), roles=frozenset(["client"]))
        for name in fields["logins"]
    }
    shows = json_fields.mapping(fields.get("shows"), "shows")
    return Shown(
        host=host,
        trusts=base64.b64decode(json_fields.text(fields, "trusts")),
        may_be={**logins, host: own},
        shows={
            name: CertificatePair(base64.b64decode(certificate), base64.b64decode(key))
            for name, (certificate, key) in shows.items()
        },
    )


def believed(hosts: Collection[Shown], authorities: Collection[str]) -> Believed:
    """Return the bundle and pairs of ``hosts`` if all are right; or ConfigError with each error.

    ``authorities`` are fingerprints as :func:`fingerprint` gives them; empty: all hosts, at least
    one, must trust the same. Of two pairs of one name (a renewal was interrupted) the later counts.
    """
    bundle = _bundle(hosts, authorities)
    wrong: list[str] = []
    pairs: dict[str, CertificatePair] = {}
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
    """Raise ConfigError unless ``bundle`` has only authorities, and exactly these fingerprints.

    ``authorities`` empty: any authorities.
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
    """Return the ``ca.pem`` of all hosts; ConfigError if they trust different authorities."""
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


def _judged(
    name: str, pair: CertificatePair, identity: CertificateIdentity | None, bundle: bytes
) -> datetime.datetime:
    """Return the end of validity; ConfigError unless the certificate fits ``identity``."""
    if identity is None:
        raise ConfigError("the inventory has no such certificate there")
    chain = certificates_in(pair.certificate, "it")
    described = describe(chain[0])
    others = [one for one in (described.subject, *described.names) if one not in identity.names]
    if others:
        raise ConfigError(
            f"it names {', '.join(others)}, which it isn't by the inventory (where it is, add it "
            "to newsfabric_certificate_names of the host)"
        )
    if not described.names or described.names[0] != name:
        raise ConfigError(f"it isn't {name}'s by its first name")
    roles = [one for one in described.roles if one not in identity.roles]
    if described.authority or roles or not described.roles:
        raise ConfigError(
            f"it is for {', '.join(roles or ['another use'])}, "
            f"and {', '.join(sorted(identity.roles))} is what it is to be for"
        )
    unsigned = not_signed(chain, described, certificates_in(bundle, "ca.pem"))
    if unsigned is not None:
        raise ConfigError(unsigned)
    if key_identifier(pair.key, "its key") != described.key:
        raise ConfigError("the private key is another certificate's")
    return described.ends
