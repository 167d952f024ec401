"""How long ``newsfabric up`` waits before it gives up."""

from __future__ import annotations

from localfabric.cli.up import start_limit
from localfabric.world.layout import lay_out
from localfabric.world.options import WorldOptions


def test_the_default_world_has_two_minutes_and_a_larger_one_more(tmp_path):
    assert start_limit(lay_out(WorldOptions(), tmp_path)) == 120.0
    large = WorldOptions(core_nodes=3, store="cassandra", store_nodes=3)
    assert start_limit(lay_out(large, tmp_path)) == 340.0
