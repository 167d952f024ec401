"""The program that runs a service of the fabric with other limits than its own.

    python limited.py '{"wholesale.router.jobs.HOLD_SECONDS": 5}' wholesale router --name …

In production a limit takes effect after minutes or millions of messages. Here all is real but the
limit: a constant of a module (``wholesale.router.jobs.HOLD_SECONDS``), or the default of a keyword
of a class (``gateway.memory.hub.HubLimits.topics``). A text instead of a number puts in a bug:
calling the thing with that name raises a RuntimeError.
"""

from __future__ import annotations

import importlib
import json
import runpy
import sys
from typing import Any, NoReturn


def change(name: str, value: Any) -> None:
    """Change the value of the constant or default ``name``; KeyError if it doesn't exist."""
    place, _, last = name.rpartition(".")
    owner: Any
    try:
        owner = importlib.import_module(place)
    except ModuleNotFoundError:
        module, _, made = place.rpartition(".")
        owner = getattr(importlib.import_module(module), made).__init__.__kwdefaults__
        owner[last] = _like(owner[last], value)
    else:
        setattr(owner, last, _like(vars(owner)[last], value))


def _like(old: Any, value: Any) -> Any:
    return _failing(value) if isinstance(value, str) else type(old)(value)


def _failing(text: str) -> Any:
    def fail(*_: object, **__: object) -> NoReturn:
        raise RuntimeError(text)

    return fail


if __name__ == "__main__":
    for name, value in json.loads(sys.argv[1]).items():
        change(name, value)
    module = sys.argv[2]
    sys.argv[1:] = sys.argv[3:]
    sys.path.insert(0, "")
    runpy.run_module(module, run_name="__main__", alter_sys=True)
