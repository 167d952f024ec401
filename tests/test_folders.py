"""The folders of our modules: no two import each other, and each has a name and a place.

Files have no circle (tests/test_no_circles.py); this checks the same for pairs of folders, so that
one can be read, tested or removed without the other.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest
from imports import modules, needs

import gateway

ROOT: Final = Path(__file__).parents[1]
SERVICES: Final = ("gateway", "wholesale", "retail", "shovels")
#: Modules in newsfabric that no service imports.
OF_NO_SERVICE: Final = {
    "newsfabric.amqp.stub": "a broker in memory, for tests and benches of what speaks AMQP",
    "newsfabric.amqp.stub_queues": "its queues",
}
MOST_AT_THE_ROOT: Final = 15
#: Packages with a row for each folder in CONTRIBUTING.md.
MAPPED: Final = ("newsfabric", "operations", "gateway", "wholesale")


def folder(module: str, known: set[str]) -> str:
    """Return the folder of ``module``; a package's ``__init__`` is in the package."""
    is_package = any(other.startswith(f"{module}.") for other in known)
    return module if is_package else module.rpartition(".")[0]


def arrows(sources: dict[str, str]) -> set[tuple[str, str]]:
    """Return pairs of folders of which the first imports the second."""
    known = set(sources)
    found = {
        (folder(module, known), folder(other, known))
        for module, others in needs(sources).items()
        for other in others
    }
    return {(one, other) for one, other in found if one != other}


def pairs(sources: dict[str, str]) -> set[tuple[str, str]]:
    """Return pairs of folders that import each other."""
    one_way = arrows(sources)
    return {(one, other) for one, other in one_way if one < other and (other, one) in one_way}


def test_no_two_folders_import_each_other() -> None:
    assert pairs(modules()) == set()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("import a.b.two", "from a import three"),
        ("from a.b import two", "def late() -> None:\n    from a.three import Three"),
    ],
)
def test_a_pair_is_found(one: str, other: str) -> None:
    sources = {"a": "", "a.b": "", "a.one": one, "a.b.two": other, "a.three": ""}
    assert pairs(sources) == {("a", "a.b")}


def test_one_way_is_no_pair() -> None:
    sources = {
        "a": "",
        "a.b": "",
        "a.one": "from a.b import two",
        "a.b.two": "from a.b import four",
    }
    assert pairs(sources | {"a.b.four": ""}) == set()


def test_the_folders_of_a_gateway_are_in_an_order() -> None:
    package = gateway.__doc__ or ""
    (listed,) = re.findall(r"before it in\s+this list: ([\w, \n]+)\.", package)
    order = [f"gateway.{name}" for name in re.split(r",\s+", listed)]
    found = arrows({n: text for n, text in modules().items() if n.partition(".")[0] == "gateway"})
    # A folder within one of these counts as that.
    rooms = [tuple(".".join(name.split(".")[:2]) for name in arrow) for arrow in found]
    there = [f"gateway.{path.parent.name}" for path in (ROOT / "gateway").glob("*/__init__.py")]
    assert sorted(order) == sorted(there)
    place = {room: number for number, room in enumerate([*order, "gateway"])}
    placed = [(one, other) for one, other in rooms if {one, other} <= place.keys()]
    assert [(one, other) for one, other in placed if place[one] < place[other]] == []


def test_newsfabric_is_what_services_import() -> None:
    sources = modules()
    imported = needs(sources)
    waiting = [name for name in sources if name.partition(".")[0] in SERVICES]
    reached: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in sources and name not in reached:
            reached.add(name)
            # An import of a.b.c also runs a and a.b.
            waiting += [*imported[name], name.rpartition(".")[0]]
    ours = {name for name in sources if name.partition(".")[0] == "newsfabric"}
    assert ours - reached == set(OF_NO_SERVICE)


def test_the_root_of_newsfabric_stays_small() -> None:
    assert len([*(ROOT / "newsfabric").glob("*.py")]) <= MOST_AT_THE_ROOT


def test_the_root_of_a_gateway_is_its_command_line_alone() -> None:
    found = {path.name for path in (ROOT / "gateway").glob("*.py")}
    assert found == {"__init__.py", "__main__.py"}


def test_each_of_these_folders_is_on_the_map() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    listed = re.findall(rf"(?m)^\| `((?:{'|'.join(MAPPED)})/[\w/]*)` \|", text)
    there = [
        f"{path.parent.relative_to(ROOT).as_posix()}/"
        for package in MAPPED
        for path in (ROOT / package).rglob("__init__.py")
    ]
    assert sorted(listed) == sorted(there)
