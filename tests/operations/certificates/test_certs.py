"""``newsfabric certs``: the files it makes, the files it leaves alone, and the errors it finds."""

from __future__ import annotations

import base64
import datetime
import json
import stat
import tempfile
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from hypothesis import assume, example, given
from hypothesis import strategies as st

from newsfabric.errors import ConfigError
from operations.certificates.checking import check
from operations.certificates.due import duration, in_words
from operations.certificates.folder import Folder, looked_into, opened
from operations.certificates.making import describe, make_authority, make_certificate
from operations.cli import cli

NOW = datetime.datetime(2026, 11, 22, 12, tzinfo=datetime.UTC)
DAY = datetime.timedelta(days=1)
YEARS = 3650 * DAY
HOST = "core-1.example"


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """Return a folder with an authority and a server's certificate for 90 days."""
    made = Folder(tmp_path)
    made.init("ours", now=NOW, lifetime=YEARS)
    issue(made)
    return made


def issue(folder: Folder, *names: str, at: datetime.datetime = NOW, **changes: Any) -> str:
    """Issue a certificate; return why it was made again; empty: it wasn't."""
    options = {"roles": ["server"], "lifetime": 90 * DAY, "before": 30 * DAY} | changes
    return folder.issue([HOST, *names], options.pop("roles"), now=at, **options).why


def files_of(path: Path) -> dict[str, bytes]:
    return {str(one): one.read_bytes() for one in path.rglob("*") if one.is_file()}


def wrong(path: Path, at: datetime.datetime = NOW, **options: Any) -> tuple[str, ...]:
    settings = {"authorities": None, "key": None, "hosts": (), "before": 30 * DAY} | options
    return check(path, now=at, **settings).wrong


def test_a_certificate_says_for_whom_and_for_what_it_is():
    authority = make_authority("ours", now=NOW, lifetime=YEARS)
    names = [HOST, "10.0.1.5", "2001:db8::1"]
    made = make_certificate(authority, names, ["server"], now=NOW, lifetime=90 * DAY)
    described = describe(x509.load_pem_x509_certificate(made.certificate))
    by = describe(x509.load_pem_x509_certificate(authority.certificate))
    assert described.subject == HOST
    assert described.names == tuple(names)
    assert described.roles == ("server",)
    assert (described.by, described.authority, by.authority) == (by.key, False, True)
    assert described.ends == NOW + 90 * DAY
    assert b"PRIVATE" not in repr(made).encode()


def test_no_certificate_outlives_its_authority():
    authority = make_authority("ours", now=NOW, lifetime=10 * DAY)
    made = make_certificate(authority, [HOST], ["client"], now=NOW, lifetime=90 * DAY)
    assert x509.load_pem_x509_certificate(made.certificate).not_valid_after_utc == NOW + 10 * DAY


def test_what_is_good_is_not_made_anew(folder, tmp_path):
    before = files_of(tmp_path)
    assert not folder.init("ours", now=NOW, lifetime=YEARS).changed
    assert issue(folder, at=NOW + 59 * DAY) == ""
    assert [one.why for one in folder.renew([], now=NOW + 59 * DAY, before=30 * DAY)] == [""]
    assert files_of(tmp_path) == before


def test_what_ends_soon_is_made_anew_for_as_long_as_it_was(folder, tmp_path):
    at = NOW + 60 * DAY
    assert [one.why for one in folder.renew([], now=at, before=30 * DAY)] == [
        "it expires in 30 days"
    ]
    (_, host) = folder.show(now=at, before=30 * DAY)
    assert (host.described.begins, host.described.ends) == (
        at - datetime.timedelta(minutes=5),
        at + 90 * DAY,
    )
    assert wrong(tmp_path / "issued" / HOST / "cert.pem", at, authorities=tmp_path / "ca.pem") == ()


def test_other_names_or_another_role_make_another_certificate(folder):
    assert issue(folder, "10.0.1.5") == f"it is for {HOST}"
    assert issue(folder, "10.0.1.5") == ""
    assert issue(folder, "10.0.1.5", roles=["server", "client"]) == "it is for a server"


def test_what_a_crash_left_between_two_files_is_mended(folder, tmp_path):
    files = tmp_path / "issued" / HOST
    (files / "key.pem").write_bytes((tmp_path / "issued" / HOST / "both.pem").read_bytes())
    assert issue(folder) == ""
    other = make_certificate(
        make_authority("x", now=NOW, lifetime=YEARS), [HOST], ["server"], now=NOW, lifetime=DAY
    )
    (files / "key.pem").write_bytes(other.key)
    assert issue(folder) == "its key was another's"
    (files / "both.pem").unlink()
    assert issue(folder) == "its key was another's"
    (files / "cert.pem").unlink()
    assert folder.renew([], now=NOW, before=30 * DAY) == []
    assert issue(folder) == "there was none"


def test_only_its_owner_reads_a_key(folder, tmp_path):
    modes = {
        path.name: stat.S_IMODE(path.stat().st_mode)
        for path in (tmp_path / "issued" / HOST).iterdir()
    }
    assert modes == {"key.pem": 0o600, "both.pem": 0o600, "cert.pem": 0o644}
    (authority,) = (tmp_path / "authorities").iterdir()
    assert stat.S_IMODE((authority / "key.pem").stat().st_mode) == 0o600
    assert stat.S_IMODE(authority.stat().st_mode) == 0o700


def test_an_authority_is_replaced_without_a_certificate_that_somebody_does_not_know(
    folder, tmp_path
):
    bundle, issued = tmp_path / "ca.pem", tmp_path / "issued" / HOST / "cert.pem"
    old = bundle.read_bytes()
    with pytest.raises(ConfigError, match="rotate trust"):
        folder.sign()
    assert folder.trust("ours", now=NOW, lifetime=YEARS).changed
    assert not folder.trust("ours", now=NOW, lifetime=YEARS).changed
    both = bundle.read_bytes()
    assert both.endswith(old)
    assert len(x509.load_pem_x509_certificates(both)) == 2
    with pytest.raises(ConfigError, match="rotate sign"):
        folder.drop()
    assert folder.sign().changed
    assert not folder.sign().changed
    with pytest.raises(ConfigError, match=HOST):
        folder.drop()
    (tmp_path / "old.pem").write_bytes(old)
    assert wrong(issued, authorities=tmp_path / "old.pem") == ()
    assert issue(folder) == "another authority has signed it"
    assert wrong(issued, authorities=bundle) == ()
    assert "no trusted authority" in wrong(issued, authorities=tmp_path / "old.pem")[0]
    assert folder.drop().changed
    assert not folder.drop().changed
    assert both == bundle.read_bytes() + old
    assert len(list((tmp_path / "authorities").iterdir())) == 1


def test_an_authority_that_ends_soon_signs_nothing_more(folder):
    with pytest.raises(ConfigError, match="the authority itself expires in 10 days"):
        issue(folder, at=NOW + YEARS - 10 * DAY)


def test_two_do_not_work_in_one_folder_at_a_time(tmp_path):
    with opened(tmp_path), pytest.raises(ConfigError, match="another"), opened(tmp_path):
        pass


@pytest.mark.parametrize("where", ["", "authorities", "issued", f"issued/{HOST}"])
@pytest.mark.parametrize("mode", [0o770, 0o702])
def test_a_folder_in_which_others_write_is_not_used(folder, tmp_path, where, mode):
    (tmp_path / where).chmod(mode)
    with pytest.raises(ConfigError, match="others may write there"), opened(tmp_path):
        pass


def test_nothing_is_written_before_the_folder_is_known_to_be_ours(tmp_path):
    aim, folder = tmp_path / "aim", tmp_path / "certs"
    aim.write_text("as it was")
    folder.mkdir()
    folder.chmod(0o777)
    (folder / ".lock").symlink_to(aim)
    with pytest.raises(ConfigError, match="others may write there"), opened(folder):
        pass
    assert aim.read_text() == "as it was"


@pytest.mark.parametrize("name", ["key.pem", "both.pem"])
def test_a_key_that_others_could_read_is_named(folder, tmp_path, name):
    (tmp_path / "issued" / HOST / name).chmod(0o640)
    with pytest.raises(ConfigError, match=f"{name}: others may read it"), opened(tmp_path):
        pass


def test_a_folder_without_an_authority_says_how_to_make_one(tmp_path):
    with pytest.raises(ConfigError, match="newsfabric certs init"):
        issue(Folder(tmp_path))


def test_nothing_is_renewed_in_a_folder_without_an_authority(tmp_path):
    with pytest.raises(ConfigError, match=r"no authority in .*NEWSFABRIC_CERTS"):
        Folder(tmp_path).renew([], now=NOW, before=30 * DAY)


@pytest.mark.parametrize("name", ["", "a b", "-a", "a..b", "x" * 64, "../up", "*.example", "ä.de"])
def test_what_is_no_host_name_is_refused(folder, name):
    with pytest.raises(ConfigError, match="no host name"):
        issue(folder, name)


def test_a_lifetime_that_would_be_renewed_each_time_is_refused(folder):
    with pytest.raises(ConfigError, match="--lifetime"):
        issue(folder, lifetime=30 * DAY)


@pytest.mark.parametrize("text", ["", "30", "0d", "-1d", "1w", "1.5d", "99999d", "١d"])
def test_what_is_no_time_is_refused(text):
    with pytest.raises(ConfigError, match="90d or 36h"):
        duration(text)


def test_times_are_days_and_hours():
    assert (duration("90d"), duration("36h")) == (90 * DAY, 1.5 * DAY)
    texts = [in_words(left) for left in (2 * DAY, 1.9 * DAY, 0 * DAY, -DAY)]
    assert texts == ["2 days", "45 hours", "no time", "no time"]


def test_a_check_names_each_thing_that_is_wrong(folder, tmp_path):
    issued, bundle = tmp_path / "issued" / HOST / "cert.pem", tmp_path / "ca.pem"
    assert wrong(issued, authorities=bundle, hosts=[HOST]) == ()
    assert wrong(issued, authorities=bundle, hosts=["other"]) == (
        f"it isn't for other, but for {HOST}: have it made with that name, too",
    )
    assert wrong(issued, NOW + 80 * DAY, authorities=bundle) == ("it expires in 10 days: renew it",)
    assert wrong(issued, NOW + 90 * DAY, authorities=bundle) == (
        "it expired on 2027-02-20 12:00 UTC: renew it",
    )
    (early,) = wrong(issued, NOW - DAY, authorities=bundle)
    assert early.startswith("it isn't good before 2026-11-22 11:55 UTC")


def test_a_check_compares_the_key(folder, tmp_path):
    files, bundle = tmp_path / "issued" / HOST, tmp_path / "ca.pem"
    (authority,) = (tmp_path / "authorities").iterdir()
    (found,) = wrong(files / "cert.pem", authorities=bundle, key=authority / "key.pem")
    assert "private key is another" in found
    both = check(
        files / "both.pem", authorities=bundle, key=None, hosts=(), now=NOW, before=30 * DAY
    )
    assert (both.wrong, both.key_checked) == ((), True)


def test_a_check_of_a_stranger_s_certificate_says_that_nobody_known_stands_behind_it(
    folder, tmp_path
):
    other = Folder(tmp_path / "other")
    (tmp_path / "other").mkdir()
    other.init("theirs", now=NOW, lifetime=YEARS)
    (found,) = wrong(
        tmp_path / "issued" / HOST / "cert.pem", authorities=tmp_path / "other" / "ca.pem"
    )
    assert found.startswith("no trusted authority stands behind it")


@pytest.mark.parametrize("content", [b"", b"\x00\xff", b"-----BEGIN CERTIFICATE-----\nAAAA\n"])
def test_a_check_of_what_is_no_certificate_says_so(tmp_path, content):
    (tmp_path / "cert.pem").write_bytes(content)
    (found,) = wrong(tmp_path / "cert.pem")
    assert "no certificate in PEM there" in found


# An unknown version; a negative serial number; an issuer's name that is a bit string; an extension
# that is there twice.
@example(at=12, value=1)
@example(at=15, value=128)
@example(at=58, value=15)
@example(at=235, value=2)
@given(at=st.integers(0, 400), value=st.integers(0, 255))
def test_a_check_of_a_damaged_certificate_never_fails_itself(at, value):
    authority = make_authority("ours", now=NOW, lifetime=YEARS)
    with tempfile.TemporaryDirectory() as name:
        path, trusted = Path(name) / "cert.pem", Path(name) / "ca.pem"
        trusted.write_bytes(authority.certificate)
        made = make_certificate(authority, [HOST], ["server"], now=NOW, lifetime=90 * DAY)
        found = x509.load_pem_x509_certificate(made.certificate)
        der = bytearray(found.public_bytes(serialization.Encoding.DER))
        # The number of unused bits in the signature's last byte: no verifier looks at it.
        assume(at != len(der) - len(found.signature) - 1)
        der[at % len(der)] ^= value
        text = base64.encodebytes(bytes(der)).decode()
        path.write_text(f"-----BEGIN CERTIFICATE-----\n{text}-----END CERTIFICATE-----\n")
        assert (wrong(path, authorities=trusted) == ()) == (value == 0)


def test_the_command_makes_shows_checks_and_fails_in_one_line(tmp_path):
    def run(*words: str) -> tuple[int, Any]:
        result = CliRunner().invoke(cli, ["certs", *words])
        text = result.output
        return result.exit_code, json.loads(text) if text.startswith("{") else text

    at = ["--folder", str(tmp_path / "certs")]
    assert run("issue", HOST, *at)[1].startswith("error: no authority in")
    assert run("init", *at, "--json")[1]["changed"] is True
    assert run("init", *at, "--json")[1]["changed"] is False
    assert run("issue", HOST, "--san", "10.0.1.5", *at) == (0, f"{HOST}: made (there was none)\n")
    assert run("issue", HOST, "--san", "10.0.1.5", *at) == (0, f"{HOST}: unchanged\n")
    assert run("renew", *at, "--json") == (
        0,
        {"changed": False, "items": [{"name": HOST, "changed": False, "why": ""}]},
    )
    shown = run("show", *at, "--json")[1]["certificates"]
    assert [(one["name"], one["authority"], one["due"]) for one in shown] == [
        ("ca.pem", True, None),
        (HOST, False, None),
    ]
    issued = str(tmp_path / "certs" / "issued" / HOST / "cert.pem")
    trusted = ["--ca", str(tmp_path / "certs" / "ca.pem")]
    assert run("check", issued, *trusted, "--host", "10.0.1.5")[0] == 0
    code, output = run("check", issued, *trusted, "--host", "10.0.1.6", "--json")
    assert (code, output["checked"][0]["good"]) == (1, False)
    assert run("check", issued, "--before", "soon")[0] == 2


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="certificates:"), opened(tmp_path / "file" / "certs"):
        pass


def test_looking_at_certificates_makes_nothing(tmp_path: Path) -> None:
    shown = CliRunner().invoke(cli, ["certs", "show", "--folder", str(tmp_path / "certs")])
    assert shown.exit_code == 1
    assert shown.output.startswith(f"error: no folder {tmp_path}/certs: ")
    assert list(tmp_path.iterdir()) == []
    shown = CliRunner().invoke(cli, ["certs", "show", "--folder", str(tmp_path)])
    assert "newsfabric certs init" in shown.output
    assert list(tmp_path.iterdir()) == []


def test_nobody_looks_at_certificates_while_they_are_made(tmp_path: Path) -> None:
    with (
        opened(tmp_path),
        pytest.raises(ConfigError, match="another `newsfabric certs` works there now"),
        looked_into(tmp_path),
    ):
        pass
    with looked_into(tmp_path), looked_into(tmp_path):
        pass


def without_keys(path: Path) -> None:
    """Delete the key of the authority, as if it were lost."""
    for key in path.glob("authorities/*/key.pem"):
        key.unlink()


def test_where_the_authoritys_key_is_lost_another_one_takes_its_place(folder, tmp_path):
    without_keys(tmp_path)
    old = certificates(tmp_path / "ca.pem")
    with pytest.raises(ConfigError, match=r"key isn't in .* beginning with .*rotate trust"):
        issue(folder, "another.example")
    with pytest.raises(ConfigError, match=r"begin with .*rotate trust"):
        folder.sign()
    assert folder.trust("ours", now=NOW, lifetime=YEARS).changed
    assert not folder.trust("ours", now=NOW, lifetime=YEARS).changed
    # Hosts get both authorities before any host has a certificate of the new one.
    assert len(certificates(tmp_path / "ca.pem")) == 2
    assert folder.sign().changed
    assert [one.changed for one in folder.renew([], now=NOW, before=30 * DAY)] == [True]
    assert folder.drop().changed
    assert not set(certificates(tmp_path / "ca.pem")) & set(old)


@pytest.mark.parametrize("rotating", [False, True])
def test_a_folder_that_is_lost_begins_with_what_hosts_trust(folder, tmp_path, rotating):
    if rotating:
        folder.trust("ours", now=NOW, lifetime=YEARS)
    trusted = (tmp_path / "ca.pem").read_bytes()
    path = tmp_path / "new"
    with opened(path) as new:
        assert new.recover(trusted, {}).changed
        assert not new.recover(trusted, {}).changed
        assert (path / "ca.pem").read_bytes() == trusted
        assert new.trust("ours", now=NOW, lifetime=YEARS).changed
        both = certificates(path / "ca.pem")
        assert set(certificates(tmp_path / "ca.pem")) < set(both)
        new.sign()
        assert issue(new) == "there was none"
        assert new.drop().changed
    assert len(certificates(path / "ca.pem")) == 1


def test_a_hosts_own_certificate_is_no_authority(folder, tmp_path):
    file = tmp_path / "issued" / HOST / "cert.pem"
    command = ["certs", "recover", str(file), "--folder", str(tmp_path / "new")]
    refused = CliRunner().invoke(cli, command)
    assert refused.exit_code == 1
    assert refused.output == "error: that is no ca.pem of a host: not all in it are authorities\n"
    assert not (tmp_path / "new").exists()


def test_a_folder_begins_anew_with_the_authority_that_is_named_alone(folder, tmp_path):
    bundle = str(tmp_path / "ca.pem")
    output = CliRunner().invoke(cli, ["certs", "show", "--folder", str(tmp_path)]).output
    ours = output.strip().rpartition("SHA-256 ")[2]
    new = ["--folder", str(tmp_path / "new")]

    other = ["--authority", "0" * 64]
    refused = CliRunner().invoke(cli, ["certs", "recover", bundle, *new, *other])
    assert refused.exit_code == 1
    assert refused.output == f"error: it has the authorities {ours}, and {'0' * 64} were named\n"

    colons = ":".join(ours[at : at + 2] for at in range(0, 64, 2)).upper()
    taken = ["certs", "recover", bundle, *new, "--authority", colons]
    assert CliRunner().invoke(cli, taken).exit_code == 0
    assert (tmp_path / "new" / "ca.pem").read_bytes() == (tmp_path / "ca.pem").read_bytes()


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (["--authority", "beef"], "'beef' is no SHA-256 fingerprint (64 hex digits)"),
        ([], "give FILE or --hosts, one of the two"),
    ],
)
def test_a_wrong_option_of_recover_is_a_wrong_use(value, expected):
    refused = CliRunner().invoke(cli, ["certs", "recover", *value])
    assert refused.exit_code == 2
    assert expected in refused.output


def certificates(bundle: Path) -> list[x509.Certificate]:
    return x509.load_pem_x509_certificates(bundle.read_bytes())
