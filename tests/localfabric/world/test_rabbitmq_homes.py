"""The RabbitMQ that each node runs, on file trees laid out as the packages lay them out."""

from __future__ import annotations

from pathlib import Path

import pytest

from localfabric.world.options import WorldOptions
from localfabric.world.rabbitmq_homes import find_rabbitmqs, with_environments
from tests.support.rabbitmq_tree import tree


@pytest.fixture
def system(tmp_path: Path) -> Path:
    return Path(tree(tmp_path / "system", "3.10.8"))


def versions(options: WorldOptions, system: Path, **environ: str) -> dict[str, str]:
    found = find_rabbitmqs(options, environ, root=system / "none", system=system)
    return {place: home.version for place, home in found.items()}


def test_every_region_runs_the_one_that_is_installed(system: Path) -> None:
    options = WorldOptions(proxy=True)
    expected = {"oregon": "3.10.8", "dublin": "3.10.8", "proxy": "3.10.8"}
    assert versions(options, system) == expected


def test_one_that_is_named_goes_before_it_and_a_regions_own_before_both(
    system: Path, tmp_path: Path
) -> None:
    new, newest = tree(tmp_path / "new", "4.0.5"), tree(tmp_path / "newest", "4.3.6")
    options = WorldOptions(proxy=True, rabbitmq=new, rabbitmq_of=(("dublin", newest),))
    expected = {"oregon": "4.0.5", "dublin": "4.3.6", "proxy": "4.0.5"}
    assert versions(options, system) == expected
    options = WorldOptions(rabbitmq_of=(("dublin", newest),))
    assert versions(options, system) == {"oregon": "3.10.8", "dublin": "4.3.6"}


def test_the_environments_counts_when_a_world_begins_and_never_again(
    system: Path, tmp_path: Path
) -> None:
    new = tree(tmp_path / "new", "4.0.5")
    environ = {"NEWSFABRIC_RABBITMQ_HOME": new}
    begun = with_environments(WorldOptions(), environ)
    assert versions(begun, system) == {"oregon": "4.0.5", "dublin": "4.0.5"}
    assert versions(WorldOptions(), system, **environ) == {"oregon": "3.10.8", "dublin": "3.10.8"}
    named = WorldOptions(rabbitmq="/named/home")
    assert with_environments(named, environ) == named


def test_nothing_need_be_installed_where_every_region_has_its_own(tmp_path: Path) -> None:
    new = tree(tmp_path / "new", "4.0.5")
    options = WorldOptions(rabbitmq_of=(("dublin", new), ("oregon", new)))
    assert versions(options, tmp_path / "empty") == {"oregon": "4.0.5", "dublin": "4.0.5"}
