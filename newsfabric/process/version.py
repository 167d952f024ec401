"""Which release this is, as the installed package says."""

from __future__ import annotations

import functools
from importlib import metadata


@functools.cache
def version() -> str:
    """The version of the package ``newsfabric``; ``unknown`` where it runs without being one."""
    try:
        return metadata.version("newsfabric")
    except metadata.PackageNotFoundError:
        return "unknown"
