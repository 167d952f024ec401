"""A step of building the wheel: the data plane's program goes in, if it was built.

Without it the wheel is pure Python, and its gateways run the Tornado engine. So nobody needs Rust
to install newsfabric, and no second back end is needed for those who have it. The wheel's
tag promises no more than we know: a machine like the one that it was built on.
"""

from __future__ import annotations

import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NAME = "newsfabric-dataplane"


class WheelHook(BuildHookInterface[Any]):
    """What hatchling calls."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """``version`` is "standard" for a wheel, "editable" for a checkout that finds its own."""
        program = Path(self.root) / "target" / "release" / NAME
        if version != "standard" or not program.is_file():
            return
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"
        build_data["pure_python"] = False
        # Where gateway.native.program looks first.
        build_data["force_include"][str(program)] = f"gateway/native/{NAME}"
