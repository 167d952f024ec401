import json
import socket
from pathlib import Path

import pytest

from localfabric.world.layout import WorldLayout, lay_out
from localfabric.world.options import WorldOptions
from localfabric.world.programs import region_programs
from localfabric.world.running import planned
from localfabric.world.start import check_ports, write_files
from localfabric.world.state import Notes, make_folder
from newsfabric.errors import ConfigError, WorldError
from newsfabric.settings import credentials_from, load_fabric
from newsfabric.topics import load_topics

TOPICS = """
[[topic]]
pattern = "fabric.canary"

[[topic]]
pattern = "news.breaking"
class = "gold"
"""


@pytest.fixture
def layout(tmp_path: Path) -> WorldLayout:
    # A range of ports on which nothing listens.
    layout = lay_out(WorldOptions(port_base=22400), tmp_path / "world")
    make_folder(layout.paths.state, Notes(options=layout.options, processes=dict(planned(layout))))
    return layout


def test_a_taken_port_is_named_with_its_purpose(layout: WorldLayout) -> None:
    check_ports(layout)
    with socket.create_server(("127.0.0.1", 22526)), pytest.raises(WorldError) as caught:
        check_ports(layout)
    assert str(caught.value).splitlines() == [
        "port 22526 (oregon-core-1, management) is taken: stop what uses it, or choose --port-base"
    ]


def test_the_files_are_what_services_and_brokers_read(layout: WorldLayout, tmp_path: Path) -> None:
    topics = tmp_path / "topics.toml"
    topics.write_text(TOPICS)
    write_files(layout, topics)
    assert load_fabric(layout.paths.fabric) == layout.fabric()
    assert load_topics(layout.paths.topics).find("news.breaking") is not None
    for broker in layout.brokers():
        assert broker.definitions is not None
        definitions = json.loads(broker.definitions.read_text())
        assert definitions["users"][0]["name"] == "guest"
    assert layout.paths.erlang.joinpath(".erlang.cookie").stat().st_mode & 0o777 == 0o400


def test_publishers_with_rights_get_a_user_on_client_brokers_alone(
    layout: WorldLayout, tmp_path: Path
) -> None:
    topics = tmp_path / "topics.toml"
    topics.write_text(TOPICS + '[[publisher]]\napp_id = "cms"\ntopics = ["news.#"]\n')
    write_files(layout, topics)
    password = layout.paths.publishers / "cms"
    assert password.stat().st_mode & 0o777 == 0o600
    for broker in layout.brokers():
        assert broker.definitions is not None
        definitions = json.loads(broker.definitions.read_text())
        names = [user["name"] for user in definitions["users"]]
        assert ("cms" in names) == ("-client-" in broker.name)
        assert password.read_text().strip() not in broker.definitions.read_text()


def test_every_service_logs_in_as_a_user_of_its_own_whose_password_is_in_a_file(
    layout: WorldLayout, tmp_path: Path
) -> None:
    topics = tmp_path / "topics.toml"
    topics.write_text(TOPICS)
    write_files(layout, topics)
    region = layout.regions[0]
    secrets = {path.name: path.read_text().strip() for path in layout.paths.users.iterdir()}
    users = {}
    for program in region_programs(layout, region):
        login = credentials_from(dict(program.variables))
        users[program.name] = login.username
        assert login.password == secrets[login.username]
        assert (layout.paths.users / login.username).stat().st_mode & 0o777 == 0o600
        text = " ".join((*program.command, *(word for pair in program.variables for word in pair)))
        assert not any(secret in text for secret in secrets.values())
    assert users == {
        **{service.name: f"{service.kind}.{region.name}" for service in region.services},
        **{f"{box.name}-agent": f"box.{box.name}" for box in region.boxes},
        **{box.gateway: f"box.{box.name}" for box in region.boxes},
    }
    for definitions in layout.paths.definitions("x").parent.iterdir():
        assert not any(secret in definitions.read_text() for secret in secrets.values())


def test_topics_that_no_canary_may_use_are_refused(layout: WorldLayout, tmp_path: Path) -> None:
    topics = tmp_path / "topics.toml"
    topics.write_text('[[topic]]\npattern = "news.breaking"\n')
    with pytest.raises(ConfigError, match=r"must allow the topic fabric\.canary"):
        write_files(layout, topics)
