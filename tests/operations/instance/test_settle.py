"""First boot: the files that a machine writes to become a box, and its errors when it can't."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import gateway.__main__
import retail.__main__
from newsfabric.errors import ConfigError
from operations.instance.cloud import CloudError, InstanceCloud
from operations.instance.description import parse
from operations.instance.files import STORE, Secrets, files, login_in, password_in, pem_in
from operations.instance.settle import (
    GATEWAY,
    IMAGE,
    INSTANCE,
    SERVICES,
    described,
    renew,
    settle,
    systemctl,
)
from tests.support.instances import AWS_REGION, BOX, DOCUMENT

PEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
DESCRIPTION = parse(json.dumps(DOCUMENT))
PASSWORD = "the-box's-own-password"
IN_IMAGE = ["newsfabric-gateway.service", "newsfabric-retail-agent.service"]
IN_IMAGE += ["newsfabric-leave.service", "rabbitmq-unit.conf", "rabbitmq.conf"]
IN_IMAGE += ["advanced.config", "rabbitmq-env.conf", "enabled_plugins"]
SECRETS = {
    "newsfabric-oregon/tls/retail": json.dumps({"ca.pem": PEM}),
    "newsfabric-oregon/store/reader": json.dumps({"username": "reader", "password": "r" * 20}),
    f"newsfabric-oregon/box/{BOX}": PASSWORD,
}
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


class SecretsDict:
    """Secrets Manager as a dict."""

    def __init__(self, **changes: str) -> None:
        self.secrets = SECRETS | changes

    def secret(self, name: str) -> str:
        if name not in self.secrets:
            raise CloudError(f"secret {name}: ResourceNotFoundException")
        return self.secrets[name]


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """Return the root of a machine made from the image, which has just got its description."""
    image = tmp_path / IMAGE
    image.mkdir(parents=True)
    for name in IN_IMAGE:
        (image / name).write_text(f"{name} of the image\n")
    (tmp_path / INSTANCE).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / INSTANCE).write_text(json.dumps(DOCUMENT))
    return tmp_path


def environment(path: Path) -> dict[str, str]:
    lines = [line.partition("=") for line in path.read_text().splitlines()]
    return {name: value.removeprefix('"').removesuffix('"') for name, _, value in lines}


def run_settle(machine: Path, kept: Any) -> list[Sequence[str]]:
    ran: list[Sequence[str]] = []
    settle(machine, DESCRIPTION, BOX, kept, ran.append)
    return ran


def test_a_new_machine_becomes_a_box_and_starts_its_services(machine: Path) -> None:
    settled = described(machine)
    assert settled == DESCRIPTION
    ran = run_settle(machine, SecretsDict())
    assert ran == [
        ["systemctl", "daemon-reload"],
        ["systemctl", "start", "--no-block", *SERVICES],
    ]
    units = machine / "run/systemd/system"
    assert (units / IN_IMAGE[0]).read_text() == f"{IN_IMAGE[0]} of the image\n"
    assert (units / "rabbitmq-server.service.d/newsfabric.conf").exists()


def test_secrets_are_for_root_alone_and_in_no_environment(machine: Path) -> None:
    run_settle(machine, SecretsDict())
    secret = machine / "etc/newsfabric/secrets/box"
    assert (secret.read_text().strip(), secret.stat().st_mode & 0o777) == (PASSWORD, 0o600)
    for path in (machine / "etc/newsfabric").glob("*.env"):
        assert PASSWORD not in path.read_text()
        assert "r" * 20 not in path.read_text()
    definitions = machine / "etc/rabbitmq/definitions.json"
    assert PASSWORD not in definitions.read_text()
    assert definitions.stat().st_mode & 0o777 == 0o640
    assert [user["name"] for user in json.loads(definitions.read_text())["users"]] == [f"box.{BOX}"]


def test_a_second_boot_writes_the_same(machine: Path) -> None:
    def written() -> dict[str, str]:
        run_settle(machine, SecretsDict())
        # A random salt would change a password's hash each time: it must follow from the name.
        return {str(path): path.read_text() for path in machine.rglob("*") if path.is_file()}

    assert written() == written()


def test_two_boxes_have_two_cookies(
    machine: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    run_settle(machine, SecretsDict())
    cookie = machine / "var/lib/rabbitmq/.erlang.cookie"
    assert cookie.stat().st_mode & 0o777 == 0o400
    first = cookie.read_text()
    cookie.unlink()
    (machine / "etc/newsfabric/secrets/cookie").unlink()
    run_settle(machine, SecretsDict())
    assert cookie.read_text() != first


@pytest.mark.parametrize(
    ("command", "file"),
    [
        (gateway.__main__.main, "newsfabric-gateway.env"),
        (retail.__main__.main, "newsfabric-retail-agent.env"),
    ],
)
def test_each_line_is_an_option_of_the_command_or_a_login(
    machine: Path, command: Any, file: str
) -> None:
    run_settle(machine, SecretsDict())
    options = {f"NEWSFABRIC_{option.name.upper()}" for option in command.params}
    logins = {
        "NEWSFABRIC_AMQP_USERNAME",
        "NEWSFABRIC_CASSANDRA_USERNAME",
        "NEWSFABRIC_TLS_CA_FILE",
    }
    found = environment(machine / "etc/newsfabric" / file)
    assert found.keys() - logins <= options
    assert found["NEWSFABRIC_NAME"] == BOX


def test_the_commands_read_what_is_written(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_settle(machine, SecretsDict())
    for name, value in environment(machine / "etc/newsfabric/newsfabric-gateway.env").items():
        monkeypatch.setenv(name, value)
    words = ["--broker", "amqp://127.0.0.1:5672/%2F", "--topics", "topics.toml"]
    context = gateway.__main__.main.make_context("gateway", words, auto_envvar_prefix="NEWSFABRIC")
    assert context.params["endpoints"] == (
        "https://oregon.news.example.com/endpoints.json",
        "https://dublin.news.example.com/endpoints.json",
    )
    assert context.params["capacity"] == 50000
    assert context.params["drain_seconds"] == 120.0
    assert context.params["store"].endswith("?dc=oregon&tls=/etc/newsfabric/tls/ca.pem")


def test_other_parts_are_left_to_ansible(machine: Path) -> None:
    (machine / INSTANCE).write_text('{"role": "core", "region": "oregon"}')
    assert described(machine) is None


def test_a_box_without_its_password_yet_writes_nothing(machine: Path) -> None:
    kept = SecretsDict()
    del kept.secrets[f"newsfabric-oregon/box/{BOX}"]
    with pytest.raises(CloudError, match="ResourceNotFound"):
        run_settle(machine, kept)
    assert not (machine / "etc/rabbitmq").exists()


def run_renew(machine: Path, kept: Any) -> list[Sequence[str]]:
    ran: list[Sequence[str]] = []
    renew(machine, DESCRIPTION, kept, ran.append)
    return ran


def test_what_is_as_it_was_is_left_alone(machine: Path) -> None:
    run_settle(machine, SecretsDict())
    password = machine / STORE.lstrip("/")
    before = password.stat().st_mtime_ns
    assert run_renew(machine, SecretsDict()) == []
    assert password.stat().st_mtime_ns == before


def test_another_password_of_the_store_is_taken_over_by_the_next_control_plane(
    machine: Path,
) -> None:
    run_settle(machine, SecretsDict())
    login = json.dumps({"username": "reader", "password": "s" * 20})
    kept = SecretsDict(**{"newsfabric-oregon/store/reader": login})
    ran = run_renew(machine, kept)
    assert ran == [["systemctl", "kill", "--kill-whom=main", "--signal=KILL", GATEWAY]]
    password = machine / STORE.lstrip("/")
    assert (password.read_text(), password.stat().st_mode & 0o777) == ("s" * 20 + "\n", 0o600)
    assert run_renew(machine, kept) == []


def test_a_gateway_that_could_not_be_killed_is_killed_by_the_next_run(machine: Path) -> None:
    run_settle(machine, SecretsDict())
    login = json.dumps({"username": "reader", "password": "s" * 20})
    kept = SecretsDict(**{"newsfabric-oregon/store/reader": login})

    def fail(_: Sequence[str]) -> None:
        raise ConfigError("systemd doesn't answer")

    with pytest.raises(ConfigError, match="systemd doesn't answer"):
        renew(machine, DESCRIPTION, kept, fail)
    ran = run_renew(machine, kept)
    assert ran == [["systemctl", "kill", "--kill-whom=main", "--signal=KILL", GATEWAY]]
    assert (machine / STORE.lstrip("/")).read_text() == "s" * 20 + "\n"
    assert run_renew(machine, kept) == []


def test_another_authority_is_written_and_nobody_is_killed_for_it(machine: Path) -> None:
    run_settle(machine, SecretsDict())
    kept = SecretsDict(**{"newsfabric-oregon/tls/retail": json.dumps({"ca.pem": PEM + PEM})})
    assert run_renew(machine, kept) == []
    assert (machine / "etc/newsfabric/tls/ca.pem").read_text() == PEM + PEM


def test_a_part_that_a_secret_has_got_since_is_written(machine: Path) -> None:
    run_settle(machine, SecretsDict())
    more = json.dumps({"ca.pem": PEM, "cert.pem": PEM, "key.pem": PEM})
    run_renew(machine, SecretsDict(**{"newsfabric-oregon/tls/retail": more}))
    assert (machine / "etc/newsfabric/tls/cert.pem").read_text() == PEM


def test_a_command_that_never_ends_is_an_error_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(command: Sequence[str], **_: Any) -> None:
        raise subprocess.TimeoutExpired(command, 30)

    monkeypatch.setattr(subprocess, "run", hang)
    with pytest.raises(ConfigError, match="systemctl kill: no end after 30 s"):
        systemctl(["systemctl", "kill"])


def test_a_renewal_without_AWS_changes_nothing(machine: Path) -> None:
    run_settle(machine, SecretsDict())
    kept = SecretsDict()
    kept.secrets.clear()
    with pytest.raises(CloudError, match="ResourceNotFound"):
        run_renew(machine, kept)
    assert (machine / STORE.lstrip("/")).read_text() == "r" * 20 + "\n"


def test_an_image_that_is_not_made_for_boxes_is_named(machine: Path) -> None:
    (machine / IMAGE / "rabbitmq.conf").unlink()
    with pytest.raises(ConfigError, match=r"rabbitmq\.conf"):
        run_settle(machine, SecretsDict())


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (password_in, "short"),
        (password_in, "two lines\nof-a-password"),
        (password_in, "x" * 513),
        (login_in, "not JSON: hunter2hunter2"),
        (login_in, '{"username": "reader"}'),
        (login_in, '{"username": "a b", "password": "hunter2hunter2"}'),
        (pem_in, '{"cert.pem": "-----BEGIN hunter2hunter2"}'),
        (pem_in, '{"ca.pem": "hunter2hunter2"}'),
        (pem_in, '{"ca.pem": "-----BEGIN X", "../../evil": "-----BEGIN hunter2hunter2"}'),
    ],
)
def test_a_secret_that_is_none_is_refused_and_not_logged(read: Any, text: str) -> None:
    with pytest.raises(ConfigError, match="secret a/b: ") as caught:
        read(text, "a/b")
    assert "hunter2" not in str(caught.value)


def test_what_is_written_does_not_print_its_secrets() -> None:
    found = Secrets(
        box=PASSWORD, store={"username": "u", "password": PASSWORD}, tls={"ca.pem": PEM}
    )
    assert PASSWORD not in f"{found} {files(DESCRIPTION, BOX, found, 'cookie')}"


def test_a_box_takes_its_secrets_from_secrets_manager(passwords: Any, machine: Path) -> None:
    for name, text in SECRETS.items():
        passwords.create_secret(Name=name, SecretString=text)
    run_settle(machine, InstanceCloud(AWS_REGION))
    assert (machine / "etc/newsfabric/secrets/box").read_text().strip() == PASSWORD
    for name in SECRETS:
        passwords.delete_secret(SecretId=name, ForceDeleteWithoutRecovery=True)
