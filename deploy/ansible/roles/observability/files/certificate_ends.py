"""Writes the end of a host's certificates as a metric for the node exporter.

Run by the release's Python as ``certificate_ends.py FOLDER FILE``. FOLDER has ``cert.pem`` and
``ca.pem``; FILE becomes one of the textfile collector's, whole or not at all. The metric is the
same as that of newsfabric's processes for theirs, so the same alerts watch both. Client, proxy and
store hosts have no such process, but brokers and store nodes that show ``cert.pem``.
"""

import os
import sys
from pathlib import Path

from cryptography import x509

METRIC = "newsfabric_tls_certificate_expiry_timestamp_seconds"


def ends_in(pem: bytes) -> list[int]:
    """Return the end of each certificate of a file, as Unix time."""
    found = x509.load_pem_x509_certificates(pem)
    return [int(one.not_valid_after_utc.timestamp()) for one in found]


def exposition(certificate: bytes, authorities: bytes) -> str:
    """Return the two lines, from the contents of one file each."""
    # All certificates of a chain must be valid; of several authorities one is enough.
    ends = {"host": min(ends_in(certificate)), "authority": max(ends_in(authorities))}
    return "".join(f'{METRIC}{{use="{use}"}} {end}\n' for use, end in ends.items())


def main(folder: Path, file: Path) -> None:
    """Run; see the module's docstring."""
    text = exposition((folder / "cert.pem").read_bytes(), (folder / "ca.pem").read_bytes())
    new = file.with_suffix(".new")
    new.write_text(text, encoding="ascii")
    os.replace(new, file)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
