from pathlib import Path

from localfabric.world.plugins import link_modules, link_plugins


def plugin(installed: Path, name: str, needs: str) -> None:
    application = name.rpartition("-")[0]
    described = installed / name / "ebin" / f"{application}.app"
    described.parent.mkdir(parents=True)
    described.write_text(f"{{application, {application},\n [{needs}]}}.\n")


def linked(installed: Path, folder: Path, *names: str) -> set[str]:
    link_plugins(installed, names, folder)
    assert {link.resolve().parent for link in folder.iterdir()} == {installed}
    return {link.name for link in folder.iterdir()}


def test_a_node_finds_the_server_the_plugins_to_load_and_what_those_need(
    tmp_path: Path,
) -> None:
    installed = tmp_path / "installed"
    plugin(installed, "rabbit-4.3.6", "{applications, [kernel,\n  'ranch'\n ]}")
    plugin(installed, "rabbitmq_prelaunch-4.3.6", "{applications, []}")
    plugin(installed, "ranch-2.2.0", "{modules, [ra]},{applications,[kernel,rabbit]}")
    plugin(installed, "ra-2.16.1", "{applications, [stdlib]}")
    plugin(installed, "rabbitmq_web-4.3.6", "{optional_applications,[ra]},{applications,[rabbit]}")
    plugin(installed, "rabbitmq_mqtt-4.3.6", "{applications, [rabbit]}")
    server = {"rabbit-4.3.6", "rabbitmq_prelaunch-4.3.6", "ranch-2.2.0"}
    assert linked(installed, tmp_path / "node", "rabbitmq_web", "unknown") == server | {
        "rabbitmq_web-4.3.6",
        "ra-2.16.1",
    }
    # As after a plugin was removed, or another RabbitMQ was installed.
    assert linked(installed, tmp_path / "node") == server


def test_a_node_finds_every_archive_since_what_it_needs_isnt_known(tmp_path: Path) -> None:
    installed = tmp_path / "installed"
    plugin(installed, "rabbit-3.10.8", "{applications, [kernel]}")
    (installed / "rabbitmq_delayed-3.10.2.ez").touch()
    (installed / "README").touch()
    assert linked(installed, tmp_path / "node") == {"rabbit-3.10.8", "rabbitmq_delayed-3.10.2.ez"}


def test_every_module_is_in_one_folder_a_plugins_before_erlangs_own(tmp_path: Path) -> None:
    plugins, erlang, folder = (tmp_path / name for name in ("plugins", "lib", "modules"))
    for module in (
        plugins / "rabbit-3.10.8" / "ebin" / "rabbit.beam",
        plugins / "jsx-3.1.0" / "ebin" / "both.beam",
        erlang / "ssl-10.8" / "ebin" / "ssl.beam",
        erlang / "tools-3.5" / "ebin" / "both.beam",
    ):
        module.parent.mkdir(parents=True)
        module.touch()
    link_modules(plugins, erlang, folder)
    found = {link.name: link.resolve().parents[1].name for link in folder.iterdir()}
    assert found == {
        "rabbit.beam": "rabbit-3.10.8",
        "both.beam": "jsx-3.1.0",
        "ssl.beam": "ssl-10.8",
    }
    # The first of several nodes has made the folder; the others leave it.
    link_modules(tmp_path / "none", tmp_path / "none", folder)
    assert {link.name for link in folder.iterdir()} == found.keys()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["lib", "modules", "plugins"]
