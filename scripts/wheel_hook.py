"""A step of building the wheel: the data plane's program is included, if it was built.

Without it the wheel is pure Python, and its gateways run the Tornado engine. So installing
newsfabric doesn't need Rust, and those who have Rust need no second back end. The wheel's tag
promises no more than is known: a machine like the one that it was built on.
"""

from __future__ import annotations

import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NAME = "newsfabric-dataplane"


class WheelHook(BuildHookInterface[Any]):
    """The hook, which hatchling calls."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Include the program if ``version`` is "standard"; an "editable" one finds its own."""
        program = Path(self.root) / "target" / "release" / NAME
        if version != "standard" or not program.is_file():
            return
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"
        build_data["pure_python"] = False
        # The first place in which gateway.native.program looks.
        build_data["force_include"][str(program)] = f"gateway/native/{NAME}"
