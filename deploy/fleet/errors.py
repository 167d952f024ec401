"""The one error that this program raises on purpose."""

from __future__ import annotations


class FleetError(Exception):
    """Something is missing or failed; the text says what, and what to do."""
