"""Certificates that end soon, from the processes' reports. Pure; the wall clock is an argument.

A process reports when the certificates end that it shows, trusts or logs in with (newsfabric.tls).
Certificates of many hosts are issued together and end together: those of one day are one sentence.
"""

from __future__ import annotations

import collections
import dataclasses
import datetime
from collections.abc import Iterable, Sequence
from typing import Final

from newsfabric.messages.reports import CERTIFICATE_ENDS, MAX_TEXT
from wholesale.frontdesk.board.region_page import state_of
from wholesale.frontdesk.presence.presence import Known

_DAY_MS: Final = 86_400_000
#: `newsfabric certs renew` renews certificates that end within so long.
SOON_MS: Final = 30 * _DAY_MS
#: As the alert NewsfabricCertificateExpiresSoon.
TROUBLE_MS: Final = 2 * _DAY_MS
USES: Final = ("authority", "server", "client")


@dataclasses.dataclass(frozen=True, slots=True)
class CertificateEnding:
    """A text about certificates that end on one day. ``trouble``: so soon that it can't wait."""

    text: str
    trouble: bool


def endings(processes: Iterable[Known], now_ms: int) -> list[CertificateEnding]:
    """Return endings before ``now_ms`` + :data:`SOON_MS`, past ones too, the first to end first."""
    found: dict[tuple[datetime.date, str], list[tuple[float, str]]] = collections.defaultdict(list)
    for known in processes:
        if known.report is None or state_of(known) == "gone":
            continue
        for use in USES:
            ends = known.report.figures.get(f"{CERTIFICATE_ENDS}{use}")
            if ends is not None and ends * 1000 - now_ms < SOON_MS:
                # No certificate is older than that, whatever a report states.
                at = max(0.0, ends)
                day = datetime.datetime.fromtimestamp(at, datetime.UTC).date()
                found[day, use].append((at * 1000, known.name))
    return [_ending(day, use, sorted(them), now_ms) for (day, use), them in sorted(found.items())]


def _ending(
    day: datetime.date, use: str, them: Sequence[tuple[float, str]], now_ms: int
) -> CertificateEnding:
    ends_ms, who = them[0]
    if len(them) > 1:
        who = f"{who} and {len(them) - 1} more"
    verb = "ended" if ends_ms <= now_ms else "ends"
    text = f"{use} certificate {verb} on {day}: {who}"
    return CertificateEnding(text[:MAX_TEXT], trouble=ends_ms - now_ms < TROUBLE_MS)
