"""Fields of JSON from elsewhere, read one by one and bounded. Pure.

Each function takes parsed JSON and returns one field. ValueError, with the field's name, if the
field is missing or not as described.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from newsfabric.numbers import is_number, is_whole

#: The maximum of an AMQP timestamp and a position; JSON numbers may be larger.
MAX_COUNT: Final = 2**63 - 1


def mapping(value: Any, what: str) -> dict[str, Any]:
    """Return ``value``, whose name in errors is ``what``, as an object."""
    if not isinstance(value, dict):
        raise ValueError(f"{what} is no object")
    return value


def text(fields: Mapping[str, Any], name: str, most: int | None = None) -> str:
    """Return a text, of at most ``most`` characters if that is given."""
    value = fields.get(name)
    if not isinstance(value, str) or (most is not None and len(value) > most):
        raise ValueError(f"{name} must be text" + ("" if most is None else f" of at most {most}"))
    return value


def flag(fields: Mapping[str, Any], name: str) -> bool:
    """Return true or false."""
    value = fields.get(name)
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be true or false")
    return value


def whole(fields: Mapping[str, Any], name: str, most: int = MAX_COUNT) -> int:
    """Return a whole number from 0 to ``most``."""
    value = fields.get(name)
    if not is_whole(value, 0, most):
        raise ValueError(f"{name} must be a whole number of at most {most}")
    return value


def number(fields: Mapping[str, Any], name: str, least: float = 0.0) -> float:
    """Return a number of ``least`` or more."""
    value = fields.get(name)
    if not is_number(value, least, MAX_COUNT):
        raise ValueError(f"{name} must be a number of at least {least}")
    return float(value)


def listed(fields: Mapping[str, Any], name: str, most: int) -> list[Any]:
    """Return a list of at most ``most``."""
    values = fields.get(name)
    if not isinstance(values, list) or len(values) > most:
        raise ValueError(f"{name} must be a list of at most {most}")
    return values


def texts(fields: Mapping[str, Any], name: str, most: int, longest: int) -> tuple[str, ...]:
    """Return at most ``most`` texts of at most ``longest`` characters each."""
    return tuple(text({name: value}, name, longest) for value in listed(fields, name, most))


def numbers(fields: Mapping[str, Any], name: str, most: int, longest: int) -> dict[str, float]:
    """Return at most ``most`` numbers by names of at most ``longest`` characters."""
    found = mapping(fields.get(name), name)
    if len(found) > most or any(len(key) > longest for key in found):
        raise ValueError(f"{name} must be at most {most} numbers with short names")
    return {key: number(found, key, -MAX_COUNT) for key in found}
