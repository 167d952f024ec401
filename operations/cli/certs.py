"""``newsfabric certs``: an authority for inside the fabric, and checks of any certificates."""

from __future__ import annotations

import datetime
import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, TypeVar

import click

from newsfabric.errors import ConfigError
from newsfabric.safe_output import echo, terminal_safe
from operations.cli.options import examples, json_option

if TYPE_CHECKING:
    from operations.certificates.checking import Checked
    from operations.certificates.folder import CertificateResult, Held
    from operations.certificates.making import Description

_Command = TypeVar("_Command", bound=Callable[..., Any])
_NAME: Final = "newsfabric"
# Most machines live less than half of an authority's life; a playbook renews the hosts' files.
_AUTHORITY_LIFETIME: Final = "3650d"
_LIFETIME: Final = "90d"
_BEFORE: Final = "30d"
_SHA256: Final = re.compile("[0-9a-f]{64}", re.ASCII)
# A file of authorities has one or two.
_MOST_BYTES: Final = 1 << 20
# Some 20 KB of each host.
_MOST_SHOWN_BYTES: Final = 64 << 20


def _duration(
    _context: click.Context, parameter: click.Parameter, value: str
) -> datetime.timedelta:
    """Parse ``90d`` or ``36h``."""
    from operations.certificates.due import duration

    try:
        return duration(value)
    except ConfigError as exc:
        raise click.BadParameter(terminal_safe(str(exc)), param=parameter) from exc


def _fingerprints(
    _context: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> tuple[str, ...]:
    """SHA-256 in hex; colons, as openssl writes them, don't count."""
    found = tuple(value.replace(":", "").lower() for value in values)
    for value, one in zip(values, found, strict=True):
        if not _SHA256.fullmatch(one):
            raise click.BadParameter(
                terminal_safe(f"{value!r} is no SHA-256 fingerprint (64 hex digits)"),
                param=parameter,
            )
    return found


_FILE: Final = click.Path(dir_okay=False, path_type=Path)
_folder: Final = click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    default="certs",
    show_default=True,
    envvar="NEWSFABRIC_CERTS",
    show_envvar=True,
    help="Where the authority and what it signed lie.",
)
_before: Final = click.option(
    "--before",
    metavar="TIME",
    callback=_duration,
    default=_BEFORE,
    show_default=True,
    help="What ends within this time is due.",
)


def _of_authority(command: _Command) -> _Command:
    for option in (
        json_option,
        click.option(
            "--lifetime",
            metavar="TIME",
            callback=_duration,
            default=_AUTHORITY_LIFETIME,
            show_default=True,
            help="How long the authority is good.",
        ),
        click.option("--name", default=_NAME, show_default=True, help="What it is called."),
        _folder,
    ):
        command = option(command)
    return command


@click.group()
def certs() -> None:
    """Certificates: an authority for inside the fabric, and checks of those from elsewhere.

    Every command may be run again: good files are not made anew.
    """


@certs.command(
    epilog=examples("newsfabric certs init", "newsfabric certs init --folder vault/certs --json")
)
@_of_authority
def init(folder: Path, name: str, lifetime: datetime.timedelta, as_json: bool) -> None:
    """Make an authority, unless the folder has one.

    Who has its key (authorities/ID/key.pem) can be anybody inside the fabric: keep the folder on
    the machine that deploys, encrypted, and on no host. Every host gets ca.pem.
    """
    from operations.certificates.folder import opened

    with opened(folder) as found:
        done = found.init(name, now=_now(), lifetime=lifetime)
    _print_results([done], as_json)


@certs.command(
    epilog=examples(
        "newsfabric certs issue oregon-core-1.example.net --san oregon-core-1 --san 10.0.1.5",
        "newsfabric certs issue router.oregon --role client      a broker's user, for EXTERNAL",
    )
)
@click.argument("name")
@_folder
@click.option("--san", "others", multiple=True, help="Another host name or IP address; repeat.")
@click.option(
    "--role",
    "roles",
    multiple=True,
    type=click.Choice(["server", "client"]),
    default=["server"],
    show_default=True,
    help="What it is for; repeat.",
)
@click.option(
    "--lifetime",
    metavar="TIME",
    callback=_duration,
    default=_LIFETIME,
    show_default=True,
    help="How long it is good.",
)
@_before
@json_option
def issue(
    name: str,
    folder: Path,
    others: tuple[str, ...],
    roles: tuple[Any, ...],
    lifetime: datetime.timedelta,
    before: datetime.timedelta,
    as_json: bool,
) -> None:
    """A certificate for host NAME, unless there is a good one.

    It is made anew, with a new key, if it is due, for other names or roles, or signed by another
    authority. The files are in FOLDER/issued/NAME.
    """
    from operations.certificates.folder import opened

    with opened(folder) as found:
        made = found.issue([name, *others], roles, now=_now(), lifetime=lifetime, before=before)
    _print_results([made], as_json)


@certs.command(
    epilog=examples("newsfabric certs renew", "newsfabric certs renew --before 14d oregon-core-1")
)
@click.argument("names", metavar="[NAME]…", nargs=-1)
@_folder
@_before
@json_option
def renew(names: tuple[str, ...], folder: Path, before: datetime.timedelta, as_json: bool) -> None:
    """Make certificates anew that are due: of NAMEs, or of all. The others stay as they are."""
    from operations.certificates.folder import opened

    with opened(folder) as found:
        done = found.renew(names, now=_now(), before=before)
    _print_results(done, as_json)


@certs.command(epilog=examples("newsfabric certs show", "newsfabric certs show --json"))
@_folder
@_before
@json_option
def show(folder: Path, before: datetime.timedelta, as_json: bool) -> None:
    """List authorities and certificates, and those that are due."""
    from operations.certificates.folder import looked_into

    now = _now()
    with looked_into(folder) as found:
        held = found.show(now=now, before=before)
    if as_json:
        echo(json.dumps({"certificates": [_held(one) for one in held]}, indent=2))
        return
    for line in _table(held, now):
        echo(line)
    for one in held:
        if one.described.authority:
            echo(f"{one.described.subject}: SHA-256 {one.described.fingerprint}")


@certs.command(
    epilog=examples(
        "newsfabric certs check /etc/newsfabric/tls/cert.pem --host oregon-core-1",
        "newsfabric certs check cert.pem --ca ca.pem --key key.pem --before 14d",
    )
)
@click.argument("paths", metavar="PATH…", nargs=-1, required=True, type=_FILE)
@click.option("--ca", "authorities", type=_FILE, help="Authorities to trust.")
@click.option("--key", type=_FILE, help="The private key that belongs to it.")
@click.option("--host", "hosts", multiple=True, help="A name it must be for; repeat.")
@_before
@json_option
def check(
    paths: tuple[Path, ...],
    authorities: Path | None,
    key: Path | None,
    hosts: tuple[str, ...],
    before: datetime.timedelta,
    as_json: bool,
) -> None:
    """Check certificates of any authority, and print the faults.

    Checked are chain, names, end and key; nothing is changed. For certificates of step-ca, ACM or a
    company's authority. Without --ca it takes ca.pem beside the file, else the authorities that
    this machine trusts; without --key the key in the file, else key.pem beside it. Exits 1 if there
    is a fault.
    """
    from operations.certificates.checking import check as judge

    if key is not None and len(paths) > 1:
        raise click.UsageError("--key is of one certificate: check one PATH at a time")
    found = [
        judge(path, authorities=authorities, key=key, hosts=hosts, now=_now(), before=before)
        for path in paths
    ]
    if as_json:
        echo(json.dumps({"checked": [_checked(one) for one in found]}, indent=2))
    else:
        for one in found:
            for line in _findings(one):
                echo(line)
    sys.exit(1 if any(one.wrong for one in found) else 0)


@certs.group()
def rotate() -> None:
    """Replace the authority by a new one, in three steps.

    Between them give every host its files, and restart the processes that don't reread them:

    \b
    1. rotate trust          ca.pem has both authorities      → ca.pem to every host
    2. rotate sign, renew    the new one has signed all       → certificates to every host
    3. rotate drop           ca.pem has the new one alone     → ca.pem to every host
    """


@certs.command(
    epilog=examples(
        "newsfabric certs recover ca.pem --authority 1f0c…      whose fingerprint is known"
    )
)
@click.argument("bundle", metavar="FILE", type=click.File("rb"), required=False)
@click.option(
    "--hosts",
    type=click.File("rb"),
    help="In place of FILE: what hosts show, as recover-certificates.yml prints it.",
)
@click.option(
    "--authority",
    "authorities",
    metavar="SHA256",
    multiple=True,
    callback=_fingerprints,
    help="The fingerprint of an authority that it has; repeat: it must have these and no others.",
)
@_folder
@json_option
def recover(
    bundle: BinaryIO | None,
    hosts: BinaryIO | None,
    authorities: tuple[str, ...],
    folder: Path,
    as_json: bool,
) -> None:
    """Begin a lost folder anew, with FILE: hosts' ca.pem.

    The authority in FILE is trusted here, too, and signs nothing, since its key is lost: another
    authority takes its place (`newsfabric certs rotate`). A folder that has an authority is left
    alone.
    """
    from operations.certificates.folder import opened
    from operations.certificates.recovering import Believed, believed, checked_bundle, shown

    if (bundle is None) == (hosts is None):
        raise click.UsageError("give FILE or --hosts, one of the two")
    if hosts is not None:
        found = believed(shown(hosts.read(_MOST_SHOWN_BYTES)), authorities)
    else:
        assert bundle is not None
        found = Believed(bundle=bundle.read(_MOST_BYTES), pairs={})
        checked_bundle(found.bundle, authorities)
    with opened(folder) as there:
        done = there.recover(found.bundle, found.pairs)
    _print_results([done], as_json)


@rotate.command(epilog=examples("newsfabric certs rotate trust"))
@_of_authority
def trust(folder: Path, name: str, lifetime: datetime.timedelta, as_json: bool) -> None:
    """Make another authority. It is trusted, and doesn't sign yet."""
    from operations.certificates.folder import opened

    with opened(folder) as found:
        done = found.trust(name, now=_now(), lifetime=lifetime)
    _print_results([done], as_json)


@rotate.command(epilog=examples("newsfabric certs rotate sign && newsfabric certs renew"))
@_folder
@json_option
def sign(folder: Path, as_json: bool) -> None:
    """Have the new authority sign from now on."""
    from operations.certificates.folder import opened

    with opened(folder) as found:
        done = found.sign()
    _print_results([done], as_json)


@rotate.command(epilog=examples("newsfabric certs rotate drop"))
@_folder
@json_option
def drop(folder: Path, as_json: bool) -> None:
    """Forget the old authority, and its key."""
    from operations.certificates.folder import opened

    with opened(folder) as found:
        done = found.drop()
    _print_results([done], as_json)


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def _print_results(done: Sequence[CertificateResult], as_json: bool) -> None:
    if as_json:
        items = [{"name": one.name, "changed": one.changed, "why": one.why} for one in done]
        changed = any(one.changed for one in done)
        echo(json.dumps({"changed": changed, "items": items}, indent=2))
        return
    for one in done:
        echo(f"{one.name}: made ({one.why})" if one.changed else f"{one.name}: unchanged")


def _held(one: Held) -> dict[str, Any]:
    return {"name": one.name, "signs": one.signs, "due": one.due} | _described(one.described)


def _described(described: Description) -> dict[str, Any]:
    return {
        "subject": described.subject,
        "authority": described.authority,
        "names": described.names,
        "roles": described.roles,
        "begins": described.begins.isoformat(),
        "ends": described.ends.isoformat(),
        "key": described.key,
        "by": described.by,
        "fingerprint": described.fingerprint,
    }


def _checked(one: Checked) -> dict[str, Any]:
    described = None if one.described is None else _described(one.described)
    return {
        "path": one.path,
        "good": not one.wrong,
        "wrong": one.wrong,
        "key_checked": one.key_checked,
        "certificate": described,
    }


def _table(held: Sequence[Held], now: datetime.datetime) -> list[str]:
    from operations.certificates.due import in_words

    rows = [("NAME", "FOR", "ENDS IN", "STATE")]
    for one in held:
        described = one.described
        what = (
            "authority" if described.authority else " ".join((*described.roles, *described.names))
        )
        signs = "signs" if one.signs else "trusted"
        good = signs if described.authority else "good"
        state = good if one.due is None else f"due: {one.due}"
        rows.append((f"{described.subject}", what, in_words(described.ends - now), state))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    pairs = ((row, zip(row[:3], widths, strict=True)) for row in rows)
    return [
        "  ".join([*(cell.ljust(width) for cell, width in cells), row[3]]) for row, cells in pairs
    ]


def _findings(one: Checked) -> list[str]:
    if one.wrong:
        return [f"{one.path}: {wrong}" for wrong in one.wrong]
    assert one.described is not None
    key = "its key matches" if one.key_checked else "no key was there to compare"
    if one.described.authority:
        return [f"{one.path}: good until {one.described.ends:%Y-%m-%d}, an authority"]
    names = ", ".join(one.described.names)
    return [f"{one.path}: good until {one.described.ends:%Y-%m-%d}, for {names}; {key}"]
