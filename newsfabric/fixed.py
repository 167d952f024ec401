"""Immutable dataclasses without the cost of ``frozen``, for classes with many instances.

``@fixed(frozen=True, …)`` is ``@dataclasses.dataclass(frozen=True, …)`` to mypy, which refuses an
assignment to a field. At run time assignments are possible: a frozen dataclass sets each field by a
call, which costs three times as much as the rest of its constructor (14 fields: 2.4 instead of 0.6
µs). A process makes half a dozen such objects per message.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as fixed
else:

    def fixed(*, frozen: bool, **options: Any) -> Any:
        """Make a :func:`dataclasses.dataclass`, with a hash by the fields' values."""
        return dataclasses.dataclass(unsafe_hash=frozen, **options)


__all__ = ["fixed"]
