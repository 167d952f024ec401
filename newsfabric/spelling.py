"""What a person meant who wrote a name that there isn't. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from newsfabric.errors import ConfigError


def unknown_name(name: str, known: Iterable[str], what: str, where: str) -> ConfigError:
    """The error for a name that is none of ``known``, with the one that was meant.

    >>> str(unknown_name("dublni", ["oregon", "dublin"], "region", "in this world"))
    "no region 'dublni' in this world; did you mean dublin? (there is: oregon, dublin)"
    """
    known = list(known)
    there_is = ", ".join(known) or "none"
    return ConfigError(f"no {what} {name!r} {where}{meant(name, known)} (there is: {there_is})")


def meant(name: str, known: Iterable[str]) -> str:
    """``; did you mean X?`` if a name of ``known`` is like ``name``, else nothing."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]}?" if near else ""
