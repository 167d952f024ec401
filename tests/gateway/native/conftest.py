"""Fixtures for tests of the data plane and its control plane."""

from native_desk import desk

__all__ = ["desk"]
