"""An authority and its certificates, as files in one folder.

::

    ca.pem                  all trusted authorities: give this one to all hosts
    authorities/ID/         cert.pem and key.pem of each authority
    signing                 the ID of the one that signs
    issued/NAME/            cert.pem, key.pem, and both.pem: key and certificate in one file

Files are replaced atomically. Keys are 0600 in folders of 0700. One process works in a folder at a
time. An authority is replaced in three steps. Hosts get their files between these, so that no host
ever meets a certificate of an authority that it doesn't know::

    one ──trust──► both are trusted, the old one signs ──sign──► the new one signs ──drop──► one
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Final

from newsfabric.errors import ConfigError
from operations.certificates.due import in_words, why_due, why_other
from operations.certificates.making import (
    CLOCKS_DIFFER,
    CertificatePair,
    Description,
    Role,
    certificates_in,
    checked_name,
    describe,
    in_pem,
    key_identifier,
    make_authority,
    make_certificate,
)

_SECOND: Final = datetime.timedelta(seconds=1)
_BUNDLE: Final = "ca.pem"
_SIGNING: Final = "signing"
_LOCK: Final = ".lock"
_AUTHORITIES: Final = "authorities"
_ISSUED: Final = "issued"
_CERTIFICATE: Final = "cert.pem"
_KEY: Final = "key.pem"
_BOTH: Final = "both.pem"


@dataclasses.dataclass(frozen=True, slots=True)
class CertificateResult:
    """The result for one certificate. ``why`` is empty if nothing was changed."""

    name: str
    why: str = ""

    @property
    def changed(self) -> bool:
        """True if anything was made or replaced."""
        return self.why != ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A certificate in the folder: its name there, its content, whether it signs, why it is due."""

    name: str
    described: Description
    signs: bool = False
    due: str | None = None


class Folder:
    """The folder at ``path``. Open it with :func:`opened`."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def init(
        self, name: str, *, now: datetime.datetime, lifetime: datetime.timedelta
    ) -> CertificateResult:
        """Make an authority, unless there is one."""
        if self._signing() is not None:
            self._write_bundle()
            return CertificateResult(_BUNDLE)
        added = self._add_authority(name, now, lifetime)
        self._write_bundle()
        _write(self._path / _SIGNING, added.encode(), 0o644)
        return CertificateResult(_BUNDLE, "there was no authority")

    def issue(
        self,
        names: Sequence[str],
        roles: Sequence[Role],
        *,
        now: datetime.datetime,
        lifetime: datetime.timedelta,
        before: datetime.timedelta,
    ) -> CertificateResult:
        """Make a certificate for ``names`` in ``roles``, unless ``names[0]`` has a good one.

        ConfigError for a name that can't be in a certificate, an authority that ends soon or has no
        key, or a ``lifetime`` of at most ``before``.
        """
        wanted = tuple(dict.fromkeys(checked_name(name) for name in names))
        signer = self._signer()
        _check_lifetime(lifetime, before)
        why = self._why(wanted, roles, signer=signer, now=now, before=before)
        if why is None:
            return CertificateResult(wanted[0])
        self._check_authority(signer, now, before)
        made = make_certificate(self._authority(signer), wanted, roles, now=now, lifetime=lifetime)
        self._write_issued(wanted[0], made)
        return CertificateResult(wanted[0], why)

    def renew(
        self, names: Sequence[str], *, now: datetime.datetime, before: datetime.timedelta
    ) -> list[CertificateResult]:
        """Renew each of ``names`` (all, if there are none) that is due, for the same lifetime."""
        # In a wrong folder nothing is due: this must not look like success.
        self._signer()
        found = []
        for name in names or self._issued_names():
            held = self._issued(checked_name(name))
            lifetime = held.ends - held.begins - CLOCKS_DIFFER
            found.append(
                self.issue(held.names, held.roles, now=now, lifetime=lifetime, before=before)
            )
        return found

    def trust(
        self, name: str, *, now: datetime.datetime, lifetime: datetime.timedelta
    ) -> CertificateResult:
        """Do the first step of a rotation: make another authority, trusted and not signing yet."""
        signer = self._signer()
        if any(self._has_key(one) for one in self._authority_ids() if one != signer):
            self._write_bundle()
            return CertificateResult(_BUNDLE)
        # Authorities are ordered by their start, in whole seconds: the new one's must be later.
        old = _described(self._path / _AUTHORITIES / signer / _CERTIFICATE)
        later = old.begins + CLOCKS_DIFFER + _SECOND
        self._add_authority(name, max(now, later), lifetime)
        self._write_bundle()
        return CertificateResult(_BUNDLE, "another authority is trusted")

    def recover(self, bundle: bytes, pairs: Mapping[str, CertificatePair]) -> CertificateResult:
        """Set up a lost folder anew, for the first step. ``bundle`` is the ca.pem of hosts and
        ``pairs`` their certificates by name; :mod:`operations.certificates.recovering` has checked
        both.

        Its authorities are trusted, and sign nothing: their keys aren't here. A folder that has an
        authority is left alone.
        """
        if self._signing() is not None:
            return CertificateResult(_BUNDLE)
        for name, pair in pairs.items():
            self._write_issued(name, pair)
        parent = _folder(self._path / _AUTHORITIES)
        for one in certificates_in(bundle, _BUNDLE):
            _write(_folder(parent / describe(one).key) / _CERTIFICATE, in_pem(one), 0o644)
        self._write_bundle()
        # Up to here one that was interrupted is given again.
        _write(self._path / _SIGNING, self._authority_ids()[-1].encode(), 0o644)
        return CertificateResult(_BUNDLE, "what hosts trust is trusted here")

    def sign(self) -> CertificateResult:
        """Do the second step: the new authority signs from now on. :meth:`renew` then renews all.

        ConfigError before the first step.
        """
        newest = self._authority_ids()[-1]
        if not self._has_key(newest) or len(self._authority_ids()) == 1:
            raise ConfigError(
                "there is one authority only: begin with `newsfabric certs rotate trust`, "
                "and give ca.pem to every host"
            )
        if newest == self._signer():
            return CertificateResult(_SIGNING)
        _write(self._path / _SIGNING, newest.encode(), 0o644)
        return CertificateResult(_SIGNING, "the new authority signs")

    def drop(self) -> CertificateResult:
        """Do the third step: delete every authority but the one that signs.

        ConfigError before the second step, and while a certificate of another one is in the folder.
        """
        signer = self._signer()
        others = [one for one in self._authority_ids() if one != signer]
        if others and signer != self._authority_ids()[-1]:
            raise ConfigError("the new authority doesn't sign yet: `newsfabric certs rotate sign`")
        theirs = [name for name in self._issued_names() if self._issued(name).by != signer]
        if theirs:
            raise ConfigError(
                f"the old authority has signed {', '.join(theirs)}: `newsfabric certs renew`, "
                "and give hosts their files, first"
            )
        for one in others:
            shutil.rmtree(self._path / _AUTHORITIES / one)
        self._write_bundle()
        return (
            CertificateResult(_BUNDLE, "the old authority is forgotten")
            if others
            else CertificateResult(_BUNDLE)
        )

    def show(self, *, now: datetime.datetime, before: datetime.timedelta) -> list[Held]:
        """Return the authorities, the oldest first, and then all issued certificates, by name."""
        signer = self._signer()
        found = []
        for one in self._authority_ids():
            described = _described(self._path / _AUTHORITIES / one / _CERTIFICATE)
            ends_soon = described.ends - now <= before
            due = f"it expires in {in_words(described.ends - now)}" if ends_soon else None
            found.append(Held(name=_BUNDLE, described=described, signs=one == signer, due=due))
        for name in self._issued_names():
            described = self._issued(name)
            due = self._why(described.names, described.roles, signer=signer, now=now, before=before)
            found.append(Held(name=name, described=described, due=due))
        return found

    def _why(
        self,
        names: Sequence[str],
        roles: Sequence[Role],
        *,
        signer: str,
        now: datetime.datetime,
        before: datetime.timedelta,
    ) -> str | None:
        folder = self._path / _ISSUED / names[0]
        if not (folder / _CERTIFICATE).exists():
            return "there was none"
        held = self._issued(names[0])
        # A crash between two writes can leave files that don't belong together.
        files = (folder / _KEY, folder / _BOTH)
        if not all(file.exists() for file in files) or any(
            key_identifier(_read(file), str(file)) != held.key for file in files
        ):
            return "its key was another's"
        return why_other(held, names, roles) or why_due(held, signer=signer, now=now, before=before)

    def _has_key(self, identifier: str) -> bool:
        return (self._path / _AUTHORITIES / identifier / _KEY).exists()

    def _check_authority(
        self, signer: str, now: datetime.datetime, before: datetime.timedelta
    ) -> None:
        if not self._has_key(signer):
            raise ConfigError(
                f"the authority's key isn't in {self._path} any more, so it signs nothing: put "
                "another in its place, beginning with `newsfabric certs rotate trust`"
            )
        ends = _described(self._path / _AUTHORITIES / signer / _CERTIFICATE).ends
        if ends - now <= before:
            raise ConfigError(
                f"the authority itself expires in {in_words(ends - now)}: put another in its "
                "place, beginning with `newsfabric certs rotate trust`"
            )

    def _signer(self) -> str:
        found = self._signing()
        if found is None:
            raise ConfigError(
                f"no authority in {self._path}: say with --folder or NEWSFABRIC_CERTS where it "
                f"is, or make one with `newsfabric certs init --folder {self._path}`"
            )
        return found

    def _signing(self) -> str | None:
        try:
            found = (self._path / _SIGNING).read_text("ascii").strip()
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as exc:
            raise ConfigError(f"{self._path / _SIGNING}: {exc}") from exc
        if found not in self._authority_ids():
            raise ConfigError(f"{self._path}: the authority {found!r} isn't there any more")
        return found

    def _authority_ids(self) -> list[str]:
        """Return the identifiers, the oldest authority's first."""
        folder = self._path / _AUTHORITIES
        if not folder.is_dir():
            return []
        # A folder gets its name when it is complete.
        names = [one.name for one in folder.iterdir() if not one.name.startswith(".")]
        return sorted(names, key=lambda one: (_described(folder / one / _CERTIFICATE).begins, one))

    def _authority(self, identifier: str) -> CertificatePair:
        folder = self._path / _AUTHORITIES / identifier
        return CertificatePair(_read(folder / _CERTIFICATE), _read(folder / _KEY))

    def _add_authority(
        self, name: str, now: datetime.datetime, lifetime: datetime.timedelta
    ) -> str:
        made = make_authority(name, now=now, lifetime=lifetime)
        identifier = describe(certificates_in(made.certificate, name)[0]).key
        parent = _folder(self._path / _AUTHORITIES)
        new = Path(tempfile.mkdtemp(prefix=".", dir=parent))
        _write(new / _KEY, made.key, 0o600)
        _write(new / _CERTIFICATE, made.certificate, 0o644)
        new.rename(parent / identifier)
        return identifier

    def _write_bundle(self) -> None:
        folder = self._path / _AUTHORITIES
        all_of_them = [_read(folder / one / _CERTIFICATE) for one in self._authority_ids()]
        text = b"".join(reversed(all_of_them))
        bundle = self._path / _BUNDLE
        if not bundle.exists() or _read(bundle) != text:
            _write(bundle, text, 0o644)

    def _issued_names(self) -> list[str]:
        folder = self._path / _ISSUED
        # A folder without a certificate was left by a crash; `issue` completes it.
        return sorted(path.parent.name for path in folder.glob(f"*/{_CERTIFICATE}"))

    def _issued(self, name: str) -> Description:
        path = self._path / _ISSUED / name / _CERTIFICATE
        if not path.exists():
            raise ConfigError(
                f"no certificate for {name!r} in {self._path}: `newsfabric certs issue {name}`"
            )
        return _described(path)

    def _write_issued(self, name: str, pair: CertificatePair) -> None:
        folder = _folder(_folder(self._path / _ISSUED) / name)
        _write(folder / _BOTH, pair.key + pair.certificate, 0o600)
        _write(folder / _KEY, pair.key, 0o600)
        _write(folder / _CERTIFICATE, pair.certificate, 0o644)


@contextlib.contextmanager
def opened(path: Path) -> Iterator[Folder]:
    """Open the folder at ``path``, for this process alone until the end of the block.

    ConfigError if it can't be made or read, if others may write there (they could make hosts trust
    their own authority), or if another process works in it.
    """
    try:
        _check(_folder(path))
        with (path / _LOCK).open("w") as lock:
            _lock(path, lock, fcntl.LOCK_EX)
            yield Folder(path)
    except OSError as exc:
        raise ConfigError(f"certificates: {exc}") from exc


@contextlib.contextmanager
def looked_into(path: Path) -> Iterator[Folder]:
    """Open the folder at ``path`` for reading only: nothing is made, nor written.

    ConfigError as :func:`opened`, and if there is no folder.
    """
    try:
        if not path.exists():
            raise ConfigError(
                f"no folder {path}: say with --folder or NEWSFABRIC_CERTS where it is, or make "
                "an authority there with `newsfabric certs init`"
            )
        _check(path)
        with contextlib.ExitStack() as stack:
            # A folder without the lock file was never written to by a command of this release.
            if (path / _LOCK).exists():
                _lock(path, stack.enter_context((path / _LOCK).open()), fcntl.LOCK_SH)
            yield Folder(path)
    except OSError as exc:
        raise ConfigError(f"certificates: {exc}") from exc


def _check(path: Path) -> None:
    for one in (path, path / _AUTHORITIES, path / _ISSUED):
        _check_ours(one)
    for key in (found for name in (_KEY, _BOTH) for found in path.glob(f"*/*/{name}")):
        _check_ours(key.parent)
        _check_secret(key)


def _lock(path: Path, lock: IO[str], kind: int) -> None:
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except BlockingIOError as exc:
        raise ConfigError(f"{path}: another `newsfabric certs` works there now") from exc


def _check_ours(folder: Path) -> None:
    if not folder.exists():
        return
    found = folder.stat()
    if found.st_uid not in (0, os.geteuid()) or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ConfigError(
            f"{folder}: others may write there (mode {found.st_mode & 0o777:o}, owner "
            f"{found.st_uid}): make it yours with chown and chmod 700"
        )


def _check_secret(key: Path) -> None:
    found = key.stat()
    if found.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ConfigError(
            f"{key}: others may read it (mode {found.st_mode & 0o777:o}): chmod 600; and who knows "
            "who has: have another made (docs/certificates.md)"
        )


def _check_lifetime(lifetime: datetime.timedelta, before: datetime.timedelta) -> None:
    if lifetime <= before:
        raise ConfigError(
            f"a certificate for {in_words(lifetime)} that is renewed {in_words(before)} before "
            "its end would be renewed each time: give it a longer --lifetime"
        )


def _described(path: Path) -> Description:
    return describe(certificates_in(_read(path), str(path))[0])


def _folder(path: Path) -> Path:
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


def _read(path: Path) -> bytes:
    return path.read_bytes()


def _write(path: Path, content: bytes, mode: int) -> None:
    """Replace ``path`` atomically by ``content``; the file never has another mode."""
    descriptor, name = tempfile.mkstemp(prefix=".", dir=path.parent)
    try:
        with open(descriptor, "wb") as file:
            os.fchmod(descriptor, mode)
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
