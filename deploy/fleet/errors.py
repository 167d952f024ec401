"""The one error that this program raises on purpose."""

from __future__ import annotations


class FleetError(Exception):
    """A requirement that is missing, or a failure; the text describes it, and the remedy."""
