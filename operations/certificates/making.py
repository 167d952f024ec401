"""Certificates and keys in PEM, made and described. No I/O, no clock: callers pass ``now``.

Keys are P-256: Erlang, Java, OpenSSL and browsers accept them, and a handshake is cheaper than
RSA's. An authority's common name has a part of its key's identifier, so that an old authority and
the new one are never mistaken for each other.
"""

from __future__ import annotations

import dataclasses
import datetime
import ipaddress
import re
import warnings
from collections.abc import Sequence
from typing import Final, Literal

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from newsfabric.errors import ConfigError

Role = Literal["server", "client"]

#: How far a clock may be behind ours and still accept a new certificate.
CLOCKS_DIFFER: Final = datetime.timedelta(minutes=5)
_USES: Final = {
    "server": ExtendedKeyUsageOID.SERVER_AUTH,
    "client": ExtendedKeyUsageOID.CLIENT_AUTH,
}
#: Errors of the library for a damaged certificate, beside ValueError.
_UNREADABLE: Final = (
    x509.InvalidVersion,
    x509.DuplicateExtension,
    x509.UnsupportedGeneralNameType,
    # Raised for a name that is a bit string.
    TypeError,
)
# RFC 1123 section 2.1, in ASCII; a broker's user (router.oregon) is one, too.
_HOST: Final = re.compile(
    r"(?=.{1,253}\Z)[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*",
    re.ASCII,
)
# RFC 5280 appendix A, ub-common-name.
_MAX_COMMON_NAME: Final = 64


@dataclasses.dataclass(frozen=True, slots=True)
class CertificatePair:
    """A certificate and its private key, both PEM. ``repr`` hides the key."""

    certificate: bytes
    key: bytes = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """The content of one certificate. Identifiers are of public keys, in hex: ``key`` of its own,
    ``by`` of the authority that signed it (empty if not stated). ``fingerprint`` is the
    certificate's SHA-256."""

    subject: str
    names: tuple[str, ...]
    roles: tuple[Role, ...]
    authority: bool
    key: str
    by: str
    fingerprint: str
    begins: datetime.datetime
    ends: datetime.datetime


def checked_name(text: str) -> str:
    """Return ``text`` as a certificate may name it, a host name or IP address; else ConfigError."""
    address = _address(text)
    if address is not None:
        return str(address)
    name = text.lower()
    if not _HOST.fullmatch(name):
        raise ConfigError(f"{text!r} is no host name and no IP address")
    return name


def make_authority(
    name: str, *, now: datetime.datetime, lifetime: datetime.timedelta
) -> CertificatePair:
    """Make an authority, which may sign hosts' certificates and no other authority's."""
    key = ec.generate_private_key(ec.SECP256R1())
    own = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    subject = _subject(f"{name} {own.digest.hex()[:8]}")
    usage = _usage(key_cert_sign=True, crl_sign=True)
    made = (
        _builder(subject, subject, key.public_key(), now, now + lifetime)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(own, critical=False)
        .sign(key, hashes.SHA256())
    )
    return CertificatePair(in_pem(made), _pem(key))


def make_certificate(
    authority: CertificatePair,
    names: Sequence[str],
    roles: Sequence[Role],
    *,
    now: datetime.datetime,
    lifetime: datetime.timedelta,
) -> CertificatePair:
    """Make a key with a certificate for ``names``, the first of which is its common name, too.

    ``names`` and ``roles`` aren't empty. It ends no later than ``authority``. ConfigError for a key
    of ``authority`` that isn't P-256.
    """
    signer = x509.load_pem_x509_certificate(authority.certificate)
    key = ec.generate_private_key(ec.SECP256R1())
    ends = min(now + lifetime, signer.not_valid_after_utc)
    made = (
        _builder(_subject(names[0]), signer.subject, key.public_key(), now, ends)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(digital_signature=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage([_USES[role] for role in roles]), critical=False)
        .add_extension(
            x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(_authority_key(signer), critical=False)
        .sign(_ec_key(authority.key), hashes.SHA256())
    )
    return CertificatePair(in_pem(made), _pem(key))


def in_pem(certificate: x509.Certificate) -> bytes:
    """Return ``certificate`` in the encoding of files."""
    return certificate.public_bytes(serialization.Encoding.PEM)


def fingerprint(certificate: x509.Certificate) -> str:
    """Return the SHA-256 of ``certificate`` in hex (``openssl x509 -fingerprint -sha256``)."""
    return certificate.fingerprint(hashes.SHA256()).hex()


def describe(certificate: x509.Certificate) -> Description:
    """Return the content of ``certificate``. ConfigError if it, or its kind of key, can't
    be read."""
    try:
        return _described(certificate)
    except (ValueError, UnsupportedAlgorithm) as exc:
        raise ConfigError(f"the certificate can't be read: {exc}") from exc


def _described(certificate: x509.Certificate) -> Description:
    own = x509.SubjectKeyIdentifier.from_public_key(certificate.public_key())
    by, authority = b"", False
    names: tuple[str, ...] = ()
    uses: tuple[x509.ObjectIdentifier, ...] = ()
    for extension in certificate.extensions:
        match extension.value:
            case x509.AuthorityKeyIdentifier(key_identifier=bytes(identifier)):
                by = identifier
            case x509.SubjectAlternativeName() as value:
                # Other kinds, such as URIs, name no host.
                kinds = x509.DNSName | x509.IPAddress
                names = tuple(str(one.value) for one in value if isinstance(one, kinds))
            case x509.ExtendedKeyUsage() as value:
                uses = tuple(value)
            case x509.BasicConstraints(ca=is_authority):
                authority = is_authority
    return Description(
        subject=_common_name(certificate),
        names=names,
        roles=tuple(role for role in ("server", "client") if _USES[role] in uses),
        authority=authority,
        key=own.digest.hex(),
        by=by.hex(),
        fingerprint=fingerprint(certificate),
        begins=certificate.not_valid_before_utc,
        ends=certificate.not_valid_after_utc,
    )


def certificates_in(pem: bytes, where: str) -> list[x509.Certificate]:
    """Return all certificates in ``pem``, at least one; else ConfigError, which names ``where``."""
    try:
        with warnings.catch_warnings():
            # A certificate that breaks a rule and can be read is left for a later check to refuse.
            warnings.simplefilter("ignore")
            found = x509.load_pem_x509_certificates(pem)
            for one in found:
                # Parsed when first accessed, and cached: errors in them are reported here.
                _ = one.extensions, one.subject, one.issuer
    except (ValueError, *_UNREADABLE) as exc:
        raise ConfigError(f"{where}: no certificate in PEM there: {exc}") from exc
    return found


def key_identifier(pem: bytes, where: str) -> str:
    """Return the identifier of the private key in ``pem`` (:class:`Description`); or
    ConfigError."""
    try:
        key: PrivateKeyTypes = serialization.load_pem_private_key(pem, password=None)
        public = key.public_key()
        identifier = x509.SubjectKeyIdentifier.from_public_key(public)  # type: ignore[arg-type]
    except (ValueError, TypeError, UnsupportedAlgorithm) as exc:
        raise ConfigError(f"{where}: no private key without a password there: {exc}") from exc
    return identifier.digest.hex()


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    now: datetime.datetime,
    ends: datetime.datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCKS_DIFFER)
        .not_valid_after(ends)
    )


def _authority_key(signer: x509.Certificate) -> x509.AuthorityKeyIdentifier:
    identifier = signer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier)


def _ec_key(pem: bytes) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(pem, password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ConfigError("the authority's key isn't one of ours (P-256)")
    return key


def _usage(**given: bool) -> x509.KeyUsage:
    names = (
        "digital_signature",
        "content_commitment",
        "key_encipherment",
        "data_encipherment",
        "key_agreement",
        "key_cert_sign",
        "crl_sign",
        "encipher_only",
        "decipher_only",
    )
    return x509.KeyUsage(**{name: given.get(name, False) for name in names})


def _subject(name: str) -> x509.Name:
    # A longer host name is whole only in the alternative names, which verifiers use.
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:_MAX_COMMON_NAME])])


def _common_name(certificate: x509.Certificate) -> str:
    found = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(found[0].value) if found else certificate.subject.rfc4514_string()


def _general_name(name: str) -> x509.GeneralName:
    address = _address(name)
    return x509.DNSName(name) if address is None else x509.IPAddress(address)


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        # A format that Java reads, too.
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
