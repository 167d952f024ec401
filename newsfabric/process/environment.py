"""The part of our environment for programs that we start and that aren't our services. Pure.

Only the variables listed here: an environment may hold logins, and /proc shows it to any user that
can read the program's memory. Worlds and tests find their processes by the last two variables.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_KEPT: Final = frozenset(
    {
        "HOME",
        "LANG",
        "LANGUAGE",
        "LOGNAME",
        "PATH",
        "RUST_BACKTRACE",
        "TMPDIR",
        "TZ",
        "USER",
        # newsfabric/process/logs.py
        "NEWSFABRIC_LOG_FORMAT",
        "NEWSFABRIC_LOG_PROCESS",
        "NEWSFABRIC_LOG_REGION",
        # tests/support/reaper.py
        "NEWSFABRIC_TESTS",
        # localfabric/world/processes.py
        "NEWSFABRIC_WORLD",
    }
)


def without_secrets(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the part of ``environ`` that isn't secret."""
    return {
        name: value for name, value in environ.items() if name in _KEPT or name.startswith("LC_")
    }
