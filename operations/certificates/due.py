"""Decides which certificates must be renewed, and why. Pure.

A certificate that is still good is never renewed: a playbook may ask as often as it likes.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence
from typing import Final

from newsfabric.errors import ConfigError
from operations.certificates.making import Description, Role

_DURATION: Final = re.compile(r"([1-9][0-9]{0,5})([dh])", re.ASCII)
_UNITS: Final = {"d": datetime.timedelta(days=1), "h": datetime.timedelta(hours=1)}
# A century: dates stay within the range of X.509 and Python.
_MOST: Final = datetime.timedelta(days=36_525)


def duration(text: str) -> datetime.timedelta:
    """Parse ``90d`` or ``36h``; ConfigError for anything else."""
    found = _DURATION.fullmatch(text)
    if found is None or int(found[1]) * _UNITS[found[2]] > _MOST:
        raise ConfigError(f"{text!r} is no time: write days or hours, 90d or 36h")
    return int(found[1]) * _UNITS[found[2]]


def why_due(
    held: Description,
    *,
    signer: str,
    now: datetime.datetime,
    before: datetime.timedelta,
) -> str | None:
    """Return why ``held`` must be renewed although its content is right; None if it needn't be.

    ``signer`` identifies the present authority. A certificate is due from ``before`` its end on.
    """
    if held.by != signer:
        return "another authority has signed it"
    if held.ends <= now:
        return "it has expired"
    if held.ends - now <= before:
        return f"it expires in {in_words(held.ends - now)}"
    return None


def why_other(held: Description, names: Sequence[str], roles: Sequence[Role]) -> str | None:
    """Return why ``held`` isn't the certificate for ``names`` in ``roles``; None if it is."""
    if set(held.names) != set(names):
        return f"it is for {', '.join(held.names)}"
    if set(held.roles) != set(roles):
        return f"it is for a {' and a '.join(held.roles) or 'purpose unknown'}"
    return None


def in_words(left: datetime.timedelta) -> str:
    """Return ``left`` as text for a person: whole days, or whole hours below two days."""
    if left <= datetime.timedelta(0):
        return "no time"
    days, hours = left.days, int(left.total_seconds() // 3600)
    return f"{days} days" if days >= 2 else f"{hours} hours"
