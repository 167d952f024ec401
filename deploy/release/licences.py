"""The licences that a release may contain: SPDX expressions against ``licences.toml``."""

from __future__ import annotations

import dataclasses
import re
import tomllib
from collections.abc import Mapping
from importlib.metadata import PackageMetadata
from pathlib import Path

_TOKEN = re.compile(r"\(|\)|[^\s()]+")


@dataclasses.dataclass(frozen=True, slots=True)
class Rules:
    """``allowed``: SPDX identifiers; ``texts``: other texts in packages, with their identifiers."""

    allowed: frozenset[str]
    texts: Mapping[str, str]

    def allow(self, expression: str) -> bool:
        """Return whether this SPDX expression permits distribution; False for an unreadable one."""
        tokens = _TOKEN.findall(expression)
        try:
            result, rest = self._either(tokens)
        except IndexError:
            return False
        return result and not rest

    def of_python(self, metadata: PackageMetadata) -> str:
        """Return the licence of a Python package, by its own metadata; empty if there is none."""
        (expression,) = metadata.get_all("License-Expression") or [""]
        if expression:
            return str(expression)
        classifiers = metadata.get_all("Classifier") or []
        declared = [str((metadata.get_all("License") or [""])[0]).strip()]
        declared += [text for text in classifiers if text.startswith("License ::")]
        for text in declared:
            if text in self.allowed:
                return text
            if text in self.texts:
                return self.texts[text]
        return declared[0]

    # The grammar of SPDX: OR binds least. Each function returns a verdict and the tokens left.

    def _either(self, tokens: list[str]) -> tuple[bool, list[str]]:
        result, rest = self._all(tokens)
        while rest and rest[0] == "OR":
            other, rest = self._all(rest[1:])
            result = result or other
        return result, rest

    def _all(self, tokens: list[str]) -> tuple[bool, list[str]]:
        result, rest = self._one(tokens)
        while rest and rest[0] == "AND":
            other, rest = self._one(rest[1:])
            result = result and other
        return result, rest

    def _one(self, tokens: list[str]) -> tuple[bool, list[str]]:
        if tokens[0] == "(":
            result, rest = self._either(tokens[1:])
            return (result, rest[1:]) if rest[0] == ")" else (False, rest)
        if tokens[1:2] == ["WITH"]:
            return " ".join(tokens[:3]) in self.allowed, tokens[3:]
        return tokens[0] in self.allowed, tokens[1:]


def load_rules(path: Path) -> Rules:
    """Return the rules in a TOML file."""
    rules = tomllib.loads(path.read_text(encoding="utf-8"))
    return Rules(frozenset(rules["allowed"]), rules["texts"])
