"""Fixtures for tests of the data plane and its control plane."""

from native_rig import rig

__all__ = ["rig"]
