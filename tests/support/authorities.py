"""Certificates for tests: authorities, and the certificates that they sign."""

from __future__ import annotations

import dataclasses
import datetime
import os
from pathlib import Path

from operations.certificates.making import CertificatePair, Role, make_authority, make_certificate

HOST = "127.0.0.1"
DAY = datetime.timedelta(days=1)


@dataclasses.dataclass(frozen=True)
class Certified:
    """Files in PEM: the authority, and a certificate with its key."""

    authority: Path
    certificate: Path
    key: Path


class Authority:
    """A new authority, valid for ten days from yesterday on; its files are in ``folder``."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = name
        self._begins = datetime.datetime.now(datetime.UTC) - DAY
        self._pair = make_authority(name, now=self._begins, lifetime=10 * DAY)
        self.file = folder / f"{name}-authority.pem"
        self.file.write_bytes(self._pair.certificate)

    def sign(self, *names: str, role: Role = "server", days: float = 3) -> CertificatePair:
        """Return a certificate that ends ``days`` after yesterday: below 1, it has expired."""
        asked = names or (HOST,)
        return make_certificate(self._pair, asked, [role], now=self._begins, lifetime=days * DAY)

    def issue(self, *names: str, role: Role = "server", days: float = 3) -> Certified:
        """Sign a certificate like :meth:`sign`, as files named after the first of ``names``."""
        called = f"{self._name}-{names[0] if names else 'server'}"
        files = (self._folder / f"{called}-{what}.pem" for what in ("certificate", "key"))
        found = Certified(self.file, *files)
        put(self.sign(*names, role=role, days=days), found)
        return found


def put(pair: CertificatePair, files: Certified) -> None:
    """Replace certificate and key in ``files`` by ``pair``, each file atomically."""
    for path, content in ((files.key, pair.key), (files.certificate, pair.certificate)):
        new = path.with_suffix(".new")
        new.write_bytes(content)
        os.replace(new, path)


def certify(folder: Path, name: str) -> Certified:
    """Make a new authority, and return a server's certificate for 127.0.0.1 signed by it."""
    return Authority(folder, name).issue()
