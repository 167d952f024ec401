"""The version of this release, as of the installed package."""

from __future__ import annotations

import functools
from importlib import metadata


@functools.cache
def version() -> str:
    """Return the version of the package ``newsfabric``; ``unknown`` if it isn't installed."""
    try:
        return metadata.version("newsfabric")
    except metadata.PackageNotFoundError:
        return "unknown"
