"""Suggestions for a misspelt name. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from newsfabric.errors import ConfigError


def unknown_name(name: str, known: Iterable[str], what: str, where: str) -> ConfigError:
    """Return the error for a name that isn't in ``known``, with the closest known name.

    >>> str(unknown_name("dublni", ["oregon", "dublin"], "region", "in this world"))
    "no region 'dublni' in this world; did you mean dublin? (there is: oregon, dublin)"
    """
    known = list(known)
    there_is = ", ".join(known) or "none"
    return ConfigError(f"no {what} {name!r} {where}{meant(name, known)} (there is: {there_is})")


def meant(name: str, known: Iterable[str]) -> str:
    """Return ``; did you mean X?`` if a name of ``known`` is like ``name``, else an empty text."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]}?" if near else ""
