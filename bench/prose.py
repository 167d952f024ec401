"""Text like news: words in no repeating order, which compress like language."""

from __future__ import annotations

import functools
import random
from typing import Final

_WORDS: Final = """
    agency after ahead ballot border budget cabinet carrier change charter city climate coalition
    coast council court crowd debate decision deficit deputy district drought economy editor
    election embassy energy evening exchange export failure ferry final forecast founder freight
    government growth harbour hearing history holiday hospital industry inflation inquiry journal
    judge kingdom labour leader ledger legal market measure minister morning mountain museum
    nation notice office opening outage parliament patent petition player police portrait prison
    profit quarter quorum railway recovery reform region report rescue resident result review
    river satellite school season senate server shadow signal stadium station strike summit
    survey tariff theatre ticket tower trade treaty trial tunnel union valley venture verdict
    victory village volume voter warning weather weekend winter witness worker yield zone
"""
_LENGTH: Final = 1 << 18
#: The distance between the starts of two texts: a prime, so that few begin alike.
_STEP: Final = 7_919


@functools.cache
def _long() -> str:
    words = random.Random(1)
    return " ".join(words.choices(_WORDS.split(), k=_LENGTH // 7))


def prose(size: int, number: int) -> str:
    """Return ``size`` characters of ASCII, at most 65,536; another text for every ``number``.

    zlib reduces a kilobyte of it to a half, and 16 KB to a quarter.
    """
    start = number * _STEP % (len(_long()) - (1 << 16))
    return _long()[start : start + max(0, size)]
