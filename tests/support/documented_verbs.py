"""The verbs that docs/protocol.md shows: tests send each of them, and a new one without a change.

A capital in place of a value (``"topic":T``) stands for a value of the test's own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

_PAGE: Final = Path(__file__).parents[2] / "docs" / "protocol.md"


class DocumentedVerb(NamedTuple):
    """A verb with all its ``fields``, and the type of its ``reply``."""

    fields: dict[str, Any]
    reply: str

    @property
    def action(self) -> str:
        return str(self.fields["action"])

    def with_values(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the verb with these values, by the names of fields; others stay as documented."""
        return {name: values.get(name, value) for name, value in self.fields.items()}


def _read() -> tuple[DocumentedVerb, ...]:
    rows = re.findall(
        r'(?m)^\| `(\{"action":.*?\})` \| `(?:\{"type":")?(\w+)', _PAGE.read_text(encoding="utf-8")
    )
    return tuple(
        DocumentedVerb(json.loads(re.sub(r":([A-Z]+)", r':"\1"', verb)), reply)
        for verb, reply in rows
    )


VERBS: Final = _read()
