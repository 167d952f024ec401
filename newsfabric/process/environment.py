"""What of our environment a program gets that we start and that isn't a service of ours. Pure.

Only what is listed here: an environment may hold logins, and /proc shows it to whoever can read the
program's memory. The marks are those by which worlds and tests find their processes.
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
    """What of ``environ`` anyone may know."""
    return {
        name: value for name, value in environ.items() if name in _KEPT or name.startswith("LC_")
    }
