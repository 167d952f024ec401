"""A check whether a certificate, of any authority, is fit for a connection.

The chain is judged by ``cryptography``'s verifier (RFC 5280 and the Web's rules), which is stricter
than OpenSSL: a certificate that passes here passes there.
"""

from __future__ import annotations

import dataclasses
import datetime
import ipaddress
import ssl
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.utils import CryptographyDeprecationWarning
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from newsfabric.errors import ConfigError
from operations.certificates.due import in_words
from operations.certificates.making import (
    Description,
    certificates_in,
    checked_name,
    describe,
    key_identifier,
)

_SECOND: Final = datetime.timedelta(seconds=1)
_PRIVATE: Final = b"PRIVATE KEY-----"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """The result for one file: its first certificate's content, and each error with its remedy.

    ``key_checked`` is True if a private key was found.
    """

    path: str
    described: Description | None
    wrong: tuple[str, ...]
    key_checked: bool = False


def check(
    path: Path,
    *,
    authorities: Path | None,
    key: Path | None,
    hosts: Sequence[str],
    now: datetime.datetime,
    before: datetime.timedelta,
) -> Checked:
    """Judge the first certificate in ``path``; the others in the file are intermediates.

    ``authorities`` None: the ``ca.pem`` beside ``path``, else the authorities that this machine
    trusts. ``key`` None: the key in the same file, else the ``key.pem`` beside it, else no key is
    checked. ``hosts`` empty: the certificate is checked for its own names only. ConfigError for
    authorities, a key or hosts that can't be used.
    """
    try:
        pem = path.read_bytes()
        chain = certificates_in(pem, str(path))
        described = describe(chain[0])
    except (OSError, ConfigError) as exc:
        return Checked(path=str(path), described=None, wrong=(str(exc),))
    key_pem = _key_of(path, pem, key)
    wrong = _ending(described, now, before)
    if not described.authority:
        trusted = _trusted(path, authorities)
        wrong += _chain(chain, described, trusted, hosts, now)
        if key_pem is not None and key_identifier(key_pem, f"the key of {path}") != described.key:
            wrong.append(
                "the private key is another certificate's: put the two that belong together"
            )
    return Checked(
        path=str(path), described=described, wrong=tuple(wrong), key_checked=key_pem is not None
    )


def _ending(
    described: Description, now: datetime.datetime, before: datetime.timedelta
) -> list[str]:
    if now < described.begins:
        return [f"it isn't good before {described.begins:%Y-%m-%d %H:%M} UTC: is the clock right?"]
    if now >= described.ends:
        return [f"it expired on {described.ends:%Y-%m-%d %H:%M} UTC: renew it"]
    if described.ends - now <= before:
        return [f"it expires in {in_words(described.ends - now)}: renew it"]
    return []


def not_signed(
    chain: Sequence[x509.Certificate], described: Description, trusted: Sequence[x509.Certificate]
) -> str | None:
    """Return why no authority in ``trusted`` has signed ``chain``, judged at the time from which it
    is valid; None if one has."""
    return _not_signed(chain, described, _policy(trusted, described.begins))


def _chain(
    chain: Sequence[x509.Certificate],
    described: Description,
    trusted: list[x509.Certificate],
    hosts: Sequence[str],
    now: datetime.datetime,
) -> list[str]:
    if not described.names:
        return ["it names no host (no subjectAltName): have it made with one"]
    # An expired certificate, which `_ending` reports, is still judged by its authority.
    policy = _policy(trusted, min(max(now, described.begins), described.ends - _SECOND))
    reason = _not_signed(chain, described, policy)
    if reason is not None:
        return [f"{reason}: is it the right --ca?"]
    return [
        f"it isn't for {host}, but for {', '.join(described.names)}: "
        "have it made with that name, too"
        for host in hosts
        if not _is_for(chain, policy, checked_name(host))
    ]


def _policy(trusted: Sequence[x509.Certificate], at: datetime.datetime) -> PolicyBuilder:
    return PolicyBuilder().store(Store(list(trusted))).time(at.replace(tzinfo=None))


def _not_signed(
    chain: Sequence[x509.Certificate], described: Description, policy: PolicyBuilder
) -> str | None:
    try:
        if described.roles == ("client",):
            policy.build_client_verifier().verify(chain[0], list(chain[1:]))
        else:
            policy.build_server_verifier(_subject(described.names[0])).verify(
                chain[0], list(chain[1:])
            )
    except (VerificationError, ValueError) as exc:
        reason = str(exc).rpartition("(encountered processing <Certificate")[0] or str(exc)
        return f"no trusted authority stands behind it: {reason.strip()}"
    return None


def _is_for(chain: Sequence[x509.Certificate], policy: PolicyBuilder, host: str) -> bool:
    try:
        policy.build_server_verifier(_subject(host)).verify(chain[0], list(chain[1:]))
    except VerificationError:
        return False
    return True


def _subject(name: str) -> x509.DNSName | x509.IPAddress:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        # For a wildcard, any host that it covers will do.
        return x509.DNSName(name.replace("*", "any", 1))


def _trusted(path: Path, authorities: Path | None) -> list[x509.Certificate]:
    beside = path.with_name("ca.pem")
    file = authorities or (beside if beside.exists() and beside != path else None)
    if file is not None:
        return certificates_in(_read(file), str(file))
    known = ssl.create_default_context().get_ca_certs(binary_form=True)
    if not known:
        raise ConfigError("this machine trusts no authority: name yours with --ca")
    with warnings.catch_warnings():
        # Some well-known authorities' serial numbers break RFC 5280.
        warnings.simplefilter("ignore", CryptographyDeprecationWarning)
        return [x509.load_der_x509_certificate(one) for one in known]


def _key_of(path: Path, pem: bytes, key: Path | None) -> bytes | None:
    if key is not None:
        return _read(key)
    if _PRIVATE in pem:
        return pem
    beside = path.with_name("key.pem")
    return _read(beside) if beside.exists() else None


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as exc:
        raise ConfigError(f"{path}: {exc.strerror or exc}") from exc
