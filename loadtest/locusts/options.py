"""The options of a load test: one table, for the command line and for locust's web page.

Pure. A test against an address that isn't loopback needs an explicit option, since it looks like an
attack at the other end.
"""

from __future__ import annotations

import dataclasses
import ipaddress
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

SHAPES: Final = ("steady", "breaking_news", "reconnect_storm", "diurnal")
READERS: Final = (
    "AnonymousReader",
    "RegisteredReader",
    "RoamingReader",
    "SlowReader",
    "FallbackReader",
)
#: A user that is thousands of readers; see ``--dense``.
DENSE: Final = "DenseReaders"
#: Readers of one of them: below 20,000 descriptors, a common limit of a process.
MAX_DENSE_EACH: Final = 16_000
#: Publishers that dense readers can distinguish.
_MAX_DENSE_PUBLISHERS: Final = 256
#: The option required before any other machine is put under load.
OWN: Final = "--i-own-this-target"
MAX_READERS: Final = 1_000_000
MAX_PUBLISHERS: Final = 1000
MAX_RATE: Final = 100_000.0
MAX_SECONDS: Final = 7 * 86_400.0
MAX_BODY: Final = 60_000
MAX_TOPICS: Final = 100
_MAX_TARGETS: Final = 100


class OptionError(ValueError):
    """An option that can't be obeyed, in one line."""


@dataclasses.dataclass(frozen=True, slots=True)
class Argument:
    """An option: ``--name``, dashes for underscores; a default that is False makes it a flag."""

    name: str
    default: str | int | float | bool
    help: str
    choices: tuple[str, ...] = ()

    @property
    def flag(self) -> str:
        """The option's name on the command line."""
        return "--" + self.name.replace("_", "-")


#: All options; each field of :class:`LocustOptions` is one.
ARGUMENTS: Final = (
    Argument("shape", "breaking_news", "Course of readers and messages.", SHAPES),
    Argument("readers", 300, "Readers at most, of the kinds in --mix."),
    Argument(
        "dense", 0, "Readers of newsfabric-crowd beside these, some 16,000 a user (DenseReaders)."
    ),
    Argument("seconds", 120.0, "Seconds for which messages are published."),
    Argument(
        "settle",
        10.0,
        "Seconds after that for the last messages, at least 6; more while they still arrive.",
    ),
    Argument("messages", 2.0, "Messages a second of all publishers, when nothing has happened."),
    Argument("body", 300, "Bytes of a message's body, at least 150."),
    Argument(
        "topics", "news.breaking", "Topics with commas; no reader may be allowed to miss one."
    ),
    Argument(
        "mix",
        "AnonymousReader=6,RegisteredReader=1,RoamingReader=1,SlowReader=1,FallbackReader=1",
        "Shares of the kinds of readers.",
    ),
    Argument("amqp_publishers", 2, "Publishers over AMQP."),
    Argument("http_publishers", 1, "Publishers over HTTP."),
    Argument("roam_every", 15.0, "Seconds after which a RoamingReader goes to the next region."),
    Argument("slow_pause", 40.0, "Seconds that a SlowReader takes nothing."),
    Argument("frontdesks", "http://127.0.0.1:18100", "Frontdesks with commas, one a region."),
    Argument("amqp", "amqp://127.0.0.1:18110/%2F", "Client clusters with commas, no passwords."),
    Argument("amqp_password_file", "", "A file with the password for AMQP."),
    Argument("http_key_file", "", "A file with the key for POST /publish."),
    Argument("tokens_file", "", "A file with readers' tokens, one a line."),
    Argument("source", "", "The address that readers come from, if not the machine's choice."),
    Argument("report", "loadtest-report", "The folder of the report."),
    Argument("i_own_this_target", False, "Addresses that aren't loopback may be put under load."),
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LocustOptions:
    """The checked options of a test; see :data:`ARGUMENTS`."""

    shape: str
    readers: int
    dense: int
    seconds: float
    settle: float
    messages: float
    body: int
    topics: tuple[str, ...]
    mix: Mapping[str, int]
    amqp_publishers: int
    http_publishers: int
    roam_every: float
    slow_pause: float
    frontdesks: tuple[str, ...]
    amqp: tuple[str, ...]
    amqp_password_file: str
    http_key_file: str
    tokens_file: str
    source: str
    report: str
    i_own_this_target: bool

    @property
    def publishers(self) -> int:
        """Publishers over AMQP and HTTP together."""
        return self.amqp_publishers + self.http_publishers

    @property
    def dense_users(self) -> int:
        """Processes of dense readers."""
        return -(-self.dense // MAX_DENSE_EACH)

    @property
    def dense_each(self) -> int:
        """Readers of each of these processes, rounded up: all have the same number."""
        return -(-self.dense // self.dense_users) if self.dense else 0


def checked(given: Mapping[str, Any]) -> LocustOptions:
    """Return the options in ``given``, texts or values, else defaults; or raise OptionError."""
    given = {one.name: given.get(one.name, one.default) for one in ARGUMENTS}
    options = LocustOptions(
        shape=_choice(given, "shape", SHAPES),
        readers=_whole(given, "readers", 0, MAX_READERS),
        dense=_whole(given, "dense", 0, MAX_READERS),
        seconds=_number(given, "seconds", 1.0, MAX_SECONDS),
        settle=_number(given, "settle", 6.0, 3600.0),
        messages=_number(given, "messages", 0.001, MAX_RATE),
        body=_whole(given, "body", 150, MAX_BODY),
        topics=_texts(given, "topics", MAX_TOPICS),
        mix=_mix(str(given["mix"])),
        amqp_publishers=_whole(given, "amqp_publishers", 0, MAX_PUBLISHERS),
        http_publishers=_whole(given, "http_publishers", 0, MAX_PUBLISHERS),
        roam_every=_number(given, "roam_every", 0.1, MAX_SECONDS),
        slow_pause=_number(given, "slow_pause", 0.0, MAX_SECONDS),
        frontdesks=tuple(url.rstrip("/") for url in _texts(given, "frontdesks", _MAX_TARGETS)),
        amqp=_texts(given, "amqp", _MAX_TARGETS),
        amqp_password_file=str(given["amqp_password_file"]),
        http_key_file=str(given["http_key_file"]),
        tokens_file=str(given["tokens_file"]),
        source=str(given["source"]),
        report=str(given["report"]),
        i_own_this_target=given["i_own_this_target"] in (True, "true", "on", "1"),
    )
    if not options.publishers:
        raise OptionError("--amqp-publishers and --http-publishers are both 0: nothing to receive")
    if not options.readers + options.dense:
        raise OptionError("--readers and --dense are both 0: nobody to receive")
    if options.readers and options.mix.get("RegisteredReader") and not options.tokens_file:
        raise OptionError("RegisteredReader needs --tokens-file, or --mix without it")
    for url in options.frontdesks:
        check_target(url, ("http", "https"), own=options.i_own_this_target)
        if options.dense and not _is_plain(url):
            raise OptionError("--dense wants frontdesks at http:// and an IPv4 address")
    if options.dense and options.publishers > _MAX_DENSE_PUBLISHERS:
        raise OptionError(f"--dense: at most {_MAX_DENSE_PUBLISHERS} publishers")
    for url in options.amqp:
        check_target(url, ("amqp", "amqps"), own=options.i_own_this_target)
        if urlsplit(url).password is not None:
            raise OptionError("--amqp has a password in it: put that into --amqp-password-file")
    return options


def check_target(url: str, schemes: tuple[str, ...], *, own: bool) -> None:
    """Raise OptionError unless ``url`` has one of ``schemes``, and is on loopback or ``own``."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        _port = parts.port
    except ValueError as exc:
        raise OptionError("a target is no URL") from exc
    if parts.scheme not in schemes or not host:
        raise OptionError(f"a target must begin with {' or '.join(f'{s}://' for s in schemes)}")
    if not own and not is_loopback(host):
        raise OptionError(
            f"{host} is not loopback: a load test there needs {OWN}; say it only if you do"
        )


def is_loopback(host: str) -> bool:
    """Return whether ``host`` is certainly this machine; a name to look up is not."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _is_plain(url: str) -> bool:
    """Return whether ``newsfabric-crowd`` can use ``url``: without TLS and name look-ups."""
    parts = urlsplit(url)
    try:
        return parts.scheme == "http" and bool(ipaddress.IPv4Address(parts.hostname or ""))
    except ValueError:
        return parts.scheme == "http" and parts.hostname == "localhost"


def _mix(text: str) -> Mapping[str, int]:
    found: dict[str, int] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, _, share = part.partition("=")
        if name not in READERS or name in found:
            raise OptionError(
                f"--mix: {name!r:.40} is none of {', '.join(READERS)}, or there twice"
            )
        found[name] = _whole({"mix": share}, "mix", 0, MAX_READERS)
    if not any(found.values()):
        raise OptionError("--mix names no reader")
    return found


def _choice(given: Mapping[str, Any], name: str, choices: tuple[str, ...]) -> str:
    if given[name] not in choices:
        raise OptionError(f"--{name} is one of {', '.join(choices)}")
    return str(given[name])


def _texts(given: Mapping[str, Any], name: str, most: int) -> tuple[str, ...]:
    found = tuple(filter(None, (piece.strip() for piece in str(given[name]).split(","))))
    if not 0 < len(found) <= most:
        raise OptionError(f"--{name}: {len(found)} given, 1 to {most} wanted")
    return found


def _whole(given: Mapping[str, Any], name: str, least: int, most: int) -> int:
    found = _number(given, name, least, most)
    if found != int(found):
        raise OptionError(f"--{name.replace('_', '-')} is a whole number")
    return int(found)


def _number(given: Mapping[str, Any], name: str, least: float, most: float) -> float:
    try:
        found = float(given[name])
    except (TypeError, ValueError):
        found = float("nan")
    # NaN is in no range.
    if not least <= found <= most:
        raise OptionError(f"--{name.replace('_', '-')} is a number in {least:g}..{most:g}")
    return found
