"""The number of connections that this process's limit of descriptors allows for readers."""

from __future__ import annotations

import resource

import pytest
from descriptors import Descriptors

from gateway.process.descriptors import connections_at_most, raise_limit


def test_readers_leave_some_descriptors_for_all_else(monkeypatch: pytest.MonkeyPatch) -> None:
    for soft, most in ((256, 128), (1_024, 768), (resource.RLIM_INFINITY, (1 << 30) - 256)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, soft=soft: (soft, soft))
        assert connections_at_most() == most


def test_a_gateway_takes_what_the_system_lets_it_have() -> None:
    with Descriptors.bounded():
        raise_limit()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        assert soft == hard
