"""Certificates: an authority of one's own, and what it signs for a server."""

from __future__ import annotations

import dataclasses
import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclasses.dataclass(frozen=True)
class Certified:
    """Files in PEM: the authority, and a server's certificate for 127.0.0.1 with its key."""

    authority: Path
    certificate: Path
    key: Path


def certify(folder: Path, name: str) -> Certified:
    """A new authority, which has signed one certificate; its files are in ``folder``."""
    own, servers = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    of_authority = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"authority {name}")])
    authority = (
        _builder(of_authority, of_authority, own)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(own, hashes.SHA256())
    )
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    of_server = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    certificate = (
        _builder(of_server, of_authority, servers)
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .sign(own, hashes.SHA256())
    )
    files = Certified(*(folder / f"{name}-{what}.pem" for what in ("authority", "server", "key")))
    files.authority.write_bytes(authority.public_bytes(serialization.Encoding.PEM))
    files.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    files.key.write_bytes(
        servers.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return files


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=2))
    )
