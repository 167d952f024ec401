"""Finding RabbitMQ: file trees laid out as the packages lay them out, and one real node."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from localfabric.world.rabbitmq_home import RabbitmqHome, find_rabbitmq
from newsfabric.errors import SetupError

ROOT = Path(__file__).parents[3]
Find = Callable[..., RabbitmqHome]


def executable(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o755)
    return path


def server(folder: Path, version: str) -> Path:
    executable(folder / "sbin" / "rabbitmq-server")
    (folder / "plugins" / f"rabbit-{version}").mkdir(parents=True)
    return folder


def packaged_server(system: Path, version: str) -> Path:
    return server(system / f"usr/lib/rabbitmq/lib/rabbitmq_server-{version}", version)


def erlang(system: Path) -> Path:
    executable(system / "usr/lib/erlang/bin/epmd")
    return executable(system / "usr/lib/erlang/bin/erl").parent


@pytest.fixture
def system(tmp_path: Path) -> Path:
    return tmp_path / "system"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "checkout"


@pytest.fixture
def find(root: Path, system: Path) -> Find:
    def find(**environ: str) -> RabbitmqHome:
        return find_rabbitmq(root, {"PATH": "/nowhere", **environ}, system=system)

    return find


def test_the_systems_package_is_found_with_its_own_erlang(find: Find, system: Path) -> None:
    installed, bin_ = packaged_server(system, "3.10.8"), erlang(system)
    assert find() == RabbitmqHome(
        version="3.10.8",
        sbin=installed / "sbin",
        epmd=bin_ / "epmd",
        environment={"PATH": f"{bin_}:{installed / 'sbin'}:/nowhere"},
    )


def test_the_newest_of_several_versions_is_taken(find: Find, system: Path) -> None:
    erlang(system)
    for version in ["3.9.13", "3.10.8", "3.10.25"]:
        packaged_server(system, version)
    assert find().version == "3.10.25"


def test_a_half_removed_package_is_passed_over(find: Find, system: Path) -> None:
    erlang(system)
    packaged_server(system, "3.10.8")
    (system / "usr/lib/rabbitmq/lib/rabbitmq_server-3.11.0/plugins").mkdir(parents=True)
    assert find().version == "3.10.8"


def test_erl_on_the_path_serves_where_the_system_has_none(
    find: Find, system: Path, tmp_path: Path
) -> None:
    packaged_server(system, "3.10.8")
    bin_ = executable(tmp_path / "otp/bin/erl").parent
    epmd = executable(tmp_path / "otp/erts-14.2/bin/epmd")
    home = find(PATH=str(bin_))
    assert (home.epmd, home.environment["PATH"].split(":")[0]) == (epmd, str(bin_))


def test_the_unpacked_tree_brings_its_shared_libraries(find: Find, root: Path) -> None:
    tree = root / ".tools/rabbitmq"
    packaged_server(tree, "3.10.8")
    erlang(tree)
    libraries = tree / "usr/lib/x86_64-linux-gnu"
    libraries.mkdir()
    home = find(LD_LIBRARY_PATH="/opt/lib")
    assert home.sbin == tree / "usr/lib/rabbitmq/lib/rabbitmq_server-3.10.8/sbin"
    assert home.environment["LD_LIBRARY_PATH"] == f"{libraries}:/opt/lib"


def test_a_tree_with_a_c_library_of_its_own_is_run_without_a_word_about_libraries(
    find: Find, root: Path
) -> None:
    tree = root / ".tools/rabbitmq"
    packaged_server(tree, "4.3.6")
    erlang(tree)
    executable(tree / "usr/lib/x86_64-linux-gnu/libc.so.6")
    assert "LD_LIBRARY_PATH" not in find().environment


def test_a_relative_checkout_gives_absolute_paths(
    root: Path, system: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packaged_server(root / ".tools/rabbitmq", "3.10.8")
    erlang(root / ".tools/rabbitmq")
    monkeypatch.chdir(root)
    assert find_rabbitmq(Path(), {}, system=system).sbin.is_absolute()


def test_the_system_goes_before_the_unpacked_tree_unless_rootless_is_asked_for(
    find: Find, root: Path, system: Path
) -> None:
    for place, version in [(system, "3.12.1"), (root / ".tools/rabbitmq", "3.10.8")]:
        packaged_server(place, version)
        erlang(place)
    assert find().version == "3.12.1"
    assert find(NEWSFABRIC_ROOTLESS="1").version == "3.10.8"


def test_a_named_home_goes_before_all_others(find: Find, system: Path, tmp_path: Path) -> None:
    packaged_server(system, "3.10.8")
    erlang(system)
    named = server(tmp_path / "rabbitmq", "3.13.7")
    home = find(NEWSFABRIC_RABBITMQ_HOME=str(named))
    assert (home.version, home.sbin) == ("3.13.7", named / "sbin")


def test_a_named_home_may_be_a_tree_which_goes_with_its_own_erlang(
    find: Find, system: Path, tmp_path: Path
) -> None:
    packaged_server(system, "3.10.8")
    erlang(system)
    named, bin_ = packaged_server(tmp_path / "tree", "4.3.6"), erlang(tmp_path / "tree")
    home = find(NEWSFABRIC_RABBITMQ_HOME=str(tmp_path / "tree"))
    assert (home.version, home.sbin, home.epmd) == ("4.3.6", named / "sbin", bin_ / "epmd")
    assert home.environment["PATH"].startswith(f"{bin_}:")


@pytest.mark.parametrize("version", ["3.9.29", "3.8.0"])
def test_an_old_rabbitmq_is_refused_with_the_oldest_that_will_do(
    find: Find, system: Path, version: str
) -> None:
    packaged_server(system, version)
    erlang(system)
    with pytest.raises(SetupError, match=rf"RabbitMQ {version} .* too old: .* needs 3\.10"):
        find()


@pytest.mark.parametrize(
    ("lay_out", "complaint"),
    [
        (lambda _: None, "apt-get install rabbitmq-server"),
        (lambda system: packaged_server(system, "3.10.8"), "install the package erlang-base"),
        (
            lambda system: (
                packaged_server(system, "3.10.8"),
                executable(system / "usr/lib/erlang/bin/erl"),
            ),
            "has no epmd",
        ),
        (
            lambda system: (
                executable(
                    system / "usr/lib/rabbitmq/lib/rabbitmq_server-3.10.8/sbin/rabbitmq-server"
                ),
                erlang(system),
            ),
            "is incomplete",
        ),
    ],
)
def test_what_is_missing_is_reported_in_one_line(
    find: Find, system: Path, lay_out: Callable[[Path], object], complaint: str
) -> None:
    lay_out(system)
    with pytest.raises(SetupError, match=complaint) as caught:
        find()
    assert "\n" not in str(caught.value)


def test_who_has_no_rabbitmq_hears_how_to_get_it_with_and_without_a_checkout(find: Find) -> None:
    with pytest.raises(SetupError) as caught:
        find()
    for way in ("apt-get install rabbitmq-server", "NEWSFABRIC_RABBITMQ_HOME", "`make setup`"):
        assert way in str(caught.value)


def test_brokers_find_the_systems_programs_where_the_path_is_empty(
    find: Find, system: Path
) -> None:
    packaged_server(system, "3.10.8")
    erlang(system)
    assert find(PATH="").environment["PATH"].endswith(f":{os.defpath}")


def test_a_named_home_that_is_none_is_refused_by_name(find: Find, tmp_path: Path) -> None:
    with pytest.raises(
        SetupError, match=r"NEWSFABRIC_RABBITMQ_HOME=.* has no sbin/rabbitmq-server"
    ):
        find(NEWSFABRIC_RABBITMQ_HOME=str(tmp_path))


def test_a_named_home_without_erlang_is_refused(find: Find, tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="needs Erlang"):
        find(NEWSFABRIC_RABBITMQ_HOME=str(server(tmp_path / "rabbitmq", "3.13.7")))


@pytest.mark.broker
def test_the_erlang_found_here_runs_and_knows_that_rabbitmq(tmp_path: Path) -> None:
    try:
        home = find_rabbitmq(ROOT, os.environ)
    except SetupError as missing:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(missing))
    # Not by rabbitmqctl: each of its commands leaves an epmd behind where none was running.
    ask = "application:load(rabbit), {ok, V} = application:get_key(rabbit, vsn), io:put_chars(V)"
    (rabbit,) = (home.sbin.parent / "plugins").glob(f"rabbit-{home.version}*/ebin")
    output = subprocess.run(
        ["erl", "-noinput", "-pa", rabbit, "-eval", f"{ask}, halt()."],
        env={**os.environ, **home.environment, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert (output.returncode, output.stdout) == (0, home.version), output.stderr
    assert os.access(home.epmd, os.X_OK)


def test_an_erlang_before_otp_26_forgets_what_folders_hold(tmp_path: Path) -> None:
    for kernel, forgets in (
        ("kernel-8.5.3", True),
        ("kernel-9.0", False),
        ("kernel-11.0.4", False),
    ):
        tree = tmp_path / kernel
        erl = tree / "bin" / "erl"
        (tree / "lib" / kernel).mkdir(parents=True)
        erl.parent.mkdir()
        erl.touch(mode=0o755)
        home = RabbitmqHome(
            version="3.10.8", sbin=tree, epmd=erl, environment={"PATH": str(erl.parent)}
        )
        assert home.erlang_libraries == tree / "lib"
        assert home.forgets_folders == forgets
