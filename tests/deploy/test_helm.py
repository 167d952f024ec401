"""deploy/helm: the checks of the chart that need no cluster.

The pure checks run always; the rendered ones where there is a ``helm`` (or ``HELM`` names one).
"""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import subprocess
import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml

from localfabric.world import hidden_logins
from localfabric.world.broker import advanced
from newsfabric.kinds import CORE, KINDS, CoreKind
from newsfabric.settings import load_fabric
from newsfabric.topics import load_topics

CHART = Path(__file__).resolve().parents[2] / "deploy" / "helm" / "newsfabric"
EXAMPLE = CHART / "examples" / "oregon.yaml"
HELM = os.environ.get("HELM") or shutil.which("helm")

rendered = pytest.mark.skipif(HELM is None, reason="no helm on the PATH, and HELM names none")


def values() -> Any:
    return yaml.safe_load((CHART / "values.yaml").read_text())


def schema() -> Any:
    return json.loads((CHART / "values.schema.json").read_text())


@functools.cache
def template(*settings: str) -> subprocess.CompletedProcess[str]:
    """Render the example with ``settings``."""
    assert HELM is not None
    command = [HELM, "template", "news", str(CHART), "--kube-version", "1.31.0"]
    command += ["--values", str(EXAMPLE)]
    command += [word for setting in settings for word in ("--set", setting)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def objects(*settings: str) -> dict[tuple[str, str], Any]:
    """Return each object by kind and name."""
    done = template(*settings)
    assert done.returncode == 0, done.stderr
    found = [found for found in yaml.safe_load_all(done.stdout) if found]
    assert len({(one["kind"], one["metadata"]["name"]) for one in found}) == len(found)
    return {(one["kind"], one["metadata"]["name"]): one for one in found}


def pod(found: dict[tuple[str, str], Any], part: str) -> Any:
    kind = "StatefulSet" if part == "retail" else "Deployment"
    return found[kind, f"oregon-{part}"]["spec"]["template"]["spec"]


def containers(spec: Any) -> dict[str, Any]:
    every = spec.get("initContainers", []) + spec["containers"]
    return {one["name"]: one for one in every}


def test_a_boxs_broker_refuses_what_those_of_worlds_do() -> None:
    settings = (CHART / "templates" / "settings.yaml").read_text()
    assert f"  advanced.config: |\n{textwrap.indent(advanced(0), '    ')}" in settings
    pods = (CHART / "templates" / "retail.yaml").read_text()
    assert "RABBITMQ_ADVANCED_CONFIG_FILE, value: /etc/newsfabric/settings/advanced.config" in pods


def test_a_boxs_broker_hides_logins_as_those_of_worlds_do() -> None:
    settings = (CHART / "templates" / "settings.yaml").read_text()
    expressions = textwrap.indent(hidden_logins.EXPRESSIONS, "    ")
    assert f"  {hidden_logins.FILE}: |\n{expressions}" in settings
    flags = hidden_logins.erl_flags(f"/etc/newsfabric/settings/{hidden_logins.FILE}")
    pods = (CHART / "templates" / "retail.yaml").read_text()
    quoted = flags.replace("'", "''")
    assert f"{{name: ERL_AFLAGS, value: '{quoted}'}}" in pods
    assert '{name: ERL_CRASH_DUMP_BYTES, value: "0"}' in pods


def test_the_schema_knows_every_value_and_no_other() -> None:
    def compare(known: Any, given: Any, place: str) -> None:
        if known.get("additionalProperties") is not False:
            return
        extra = {"global"} if not place else set()
        assert set(known["properties"]) - extra == set(given), place or "the top"
        for name, below in given.items():
            if isinstance(below, dict):
                compare(known["properties"][name], below, f"{place}/{name}")

    compare(schema(), values(), "")


def test_every_number_has_a_range() -> None:
    def numbers(known: Any, place: str) -> None:
        if isinstance(known, dict):
            if known.get("type") == "integer":
                assert known.keys() >= {"minimum", "maximum"}, place
            for name, below in known.items():
                numbers(below, f"{place}/{name}")

    numbers(schema(), "")


def test_templates_hold_no_secret() -> None:
    for path in sorted((CHART / "templates").iterdir()):
        text = path.read_text()
        assert "kind: Secret" not in text, path
        assert not re.search(r"NEWSFABRIC_\w*PASSWORD,", text), path
        assert "secretKeyRef" not in text, path


def test_the_example_is_a_fabric_that_services_can_read(tmp_path: Path) -> None:
    example = yaml.safe_load(EXAMPLE.read_text())
    (tmp_path / "fabric.json").write_text(json.dumps(example["fabric"]))
    (tmp_path / "topics.toml").write_text(example["topics"])
    fabric = load_fabric(tmp_path / "fabric.json")
    assert [region.name for region in fabric.regions] == ["oregon", "dublin"]
    load_topics(tmp_path / "topics.toml")


@rendered
@pytest.mark.parametrize("part", [*CORE, "retail"])
def test_no_container_is_root_or_can_become_it(part: str) -> None:
    spec = pod(objects(), part)
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["automountServiceAccountToken"] is False
    for name, one in containers(spec).items():
        security = one["securityContext"]
        assert security["readOnlyRootFilesystem"] is True, name
        assert security["allowPrivilegeEscalation"] is False, name
        assert security["capabilities"] == {"drop": ["ALL"]}, name


@rendered
@pytest.mark.parametrize("part", [*CORE, "retail"])
def test_secrets_are_files_by_name_and_none_is_in_the_environment(part: str) -> None:
    for name, one in containers(pod(objects(), part)).items():
        for variable in one.get("env", ()):
            assert not re.search("PASSWORD$|KEY$|TOKEN$", variable["name"]), name
            if variable["name"].endswith("_FILE") and name != "broker":
                assert any(
                    variable["value"].startswith(mount["mountPath"])
                    for mount in one["volumeMounts"]
                ), variable


@rendered
@pytest.mark.parametrize("part", CORE)
def test_a_service_sees_its_own_logins_alone(part: CoreKind) -> None:
    volumes = {one["name"]: one for one in pod(objects(), part)["volumes"]}
    first = volumes["secrets"]["projected"]["sources"][0]["secret"]
    also = ["shovel.oregon"] if part == "keeper" else []
    also += {"writer": ["newsfabric"], "reader": ["newsfabric_reader"], "": []}[KINDS[part].store]
    assert [item["key"] for item in first["items"]] == [f"{part}.oregon", *also]


@rendered
@pytest.mark.parametrize("tls", [True, False])
def test_frontdesks_alone_have_the_keys_of_publishers_and_of_frontdesks(tls: bool) -> None:
    found = objects(*([] if tls else ["tls.secretName="]))
    for part in CORE:
        volumes = {one["name"]: one for one in pod(found, part)["volumes"]}
        _, *more = volumes["secrets"]["projected"]["sources"]
        held = {one["secret"]["name"]: one["secret"]["items"] for one in more}
        words = containers(pod(found, part))[part]["args"]
        if part == "frontdesk":
            assert held == {
                f"newsfabric-{name}": [{"key": name, "path": name}]
                for name in ("api-keys", "board-keys")
            }
            assert "--board-key-file=/etc/newsfabric/secrets/board-keys" in words
            # With TLS, a key is never sent over plain HTTP.
            assert ("--token-over-http" in words) is not tls
        else:
            assert held == {}


@rendered
@pytest.mark.parametrize(
    ("part", "container", "login"),
    [
        ("router", "router", "newsfabric"),
        ("mailbox", "mailbox", "newsfabric"),
        ("frontdesk", "frontdesk", "newsfabric_reader"),
        ("retail", "gateway", "newsfabric_reader"),
    ],
)
def test_who_talks_to_strangers_only_reads_the_store(part: str, container: str, login: str) -> None:
    spec = pod(objects(), part)
    environment = {each["name"]: each.get("value") for each in containers(spec)[container]["env"]}
    assert environment["NEWSFABRIC_CASSANDRA_USERNAME"] == login
    assert environment["NEWSFABRIC_CASSANDRA_PASSWORD_FILE"] == f"/etc/newsfabric/secrets/{login}"


@rendered
def test_a_box_has_no_login_that_writes() -> None:
    volumes = {one["name"]: one for one in pod(objects(), "retail")["volumes"]}
    assert [item["key"] for item in volumes["secrets"]["secret"]["items"]] == ["newsfabric_reader"]


@rendered
def test_a_box_sees_no_other_boxs_password() -> None:
    for name, one in containers(pod(objects(), "retail")).items():
        for mount in one["volumeMounts"]:
            if mount["name"] == "boxes":
                assert mount["subPathExpr"] == "box.$(POD_NAME)", name
                # Kubernetes expands variables in subPathExpr, and not in mountPath.
                assert "$" not in mount["mountPath"], name


@rendered
@pytest.mark.parametrize("part", [*CORE, "retail"])
def test_every_mount_has_a_volume(part: str) -> None:
    spec = pod(objects(), part)
    volumes = {one["name"] for one in spec["volumes"]}
    used = {m["name"] for one in containers(spec).values() for m in one["volumeMounts"]}
    assert used == volumes


@rendered
@pytest.mark.parametrize("part", [*CORE, "retail"])
def test_ready_is_what_the_process_says(part: str) -> None:
    for one in pod(objects(), part)["containers"]:
        ports = {port["name"] for port in one["ports"]}
        for probe, path in (("readinessProbe", "ready"), ("livenessProbe", "live")):
            asked = one[probe]["httpGet"]
            assert asked["path"] == f"/healthz/{path}"
            assert asked["port"] in ports
            plain = one["name"] == "gateway"
            assert asked["scheme"] == ("HTTP" if plain else "HTTPS")


@rendered
@pytest.mark.parametrize(
    ("settings", "seconds"),
    [
        ([], 120),
        (["retail.drainSeconds=300"], 360),
        (["retail.capacity=200001"], 161),
        (["retail.terminationGracePeriodSeconds=900"], 900),
    ],
)
def test_a_pod_gets_the_time_that_its_drain_takes(settings: list[str], seconds: int) -> None:
    assert pod(objects(*settings), "retail")["terminationGracePeriodSeconds"] == seconds


@rendered
def test_a_box_drains_before_it_stops_and_its_broker_goes_last() -> None:
    every = containers(pod(objects(), "retail"))
    assert every["gateway"]["lifecycle"]["preStop"]["exec"]["command"] == ["drain", "9104"]
    assert every["gateway"]["command"][0] == "keep"
    assert every["broker"]["restartPolicy"] == "Always"


@rendered
def test_the_scaler_says_how_many_boxes_there_are() -> None:
    found = objects()
    hpa = found["HorizontalPodAutoscaler", "oregon-retail"]["spec"]
    metric = hpa["metrics"][0]["external"]
    assert metric["metric"]["name"] == "newsfabric_scaler_wanted_boxes"
    assert metric["target"] == {"type": "AverageValue", "averageValue": "1"}
    assert (hpa["minReplicas"], hpa["maxReplicas"]) == (3, 12)
    assert "replicas" not in found["StatefulSet", "oregon-retail"]["spec"]
    arguments = containers(pod(found, "scaler"))["scaler"]["args"]
    assert {"--least=3", "--most=12"} <= set(arguments)


@rendered
def test_without_the_autoscaler_there_are_the_least_boxes() -> None:
    found = objects("autoscaling.enabled=false")
    assert not [name for kind, name in found if kind == "HorizontalPodAutoscaler"]
    assert found["StatefulSet", "oregon-retail"]["spec"]["replicas"] == 3


@rendered
def test_only_boxes_and_frontdesks_are_open_to_readers() -> None:
    found = objects()
    open_to_all = {
        name
        for (kind, name), one in found.items()
        if kind == "NetworkPolicy"
        for rule in one["spec"]["ingress"]
        if "from" not in rule
    }
    assert open_to_all == {"oregon-frontdesk", "oregon-retail"}
    assert len([kind for kind, _ in found if kind == "NetworkPolicy"]) == len(CORE) + 1


@rendered
def test_no_port_of_power_is_let_in() -> None:
    for (kind, name), one in objects().items():
        if kind == "NetworkPolicy":
            let_in = {port["port"] for rule in one["spec"]["ingress"] for port in rule["ports"]}
            assert not let_in & {5672, 15672, 9101, 9104}, name


@rendered
@pytest.mark.parametrize(
    ("setting", "answer"),
    [
        ("retail.boxes.least=0", "/retail/boxes/least"),
        ("retail.boxes.most=2", "retail.boxes.most is 2, and least is 3"),
        ("store.url=cassandra://me:secret@host/k", "/store/url"),
        ("store.url=sqlite:news.db", "/store/url"),
        ("store.reader=newsfabric", "store.reader is newsfabric, as store.writer"),
        ("region=atlantis", 'fabric has no region "atlantis"'),
        ("retail.terminationGracePeriodSeconds=90", "the drain of a full box and a minute are 120"),
        ("retail.drainSecond=5", "drainSecond"),
        ("tokens.issuer=", "/tokens/issuer"),
        ("networkPolicy.brokers[0]=everywhere", "/networkPolicy/brokers/0"),
    ],
)
def test_bad_values_are_refused_by_name(setting: str, answer: str) -> None:
    done = template(setting)
    assert done.returncode != 0
    assert answer in done.stderr
