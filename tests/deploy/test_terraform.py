"""deploy/terraform, as far as it can be checked without an AWS account.

The pure checks run always. Format, schema and the modules' own tests run where a ``tofu`` or a
``terraform`` is on the PATH, and can install the provider.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from wholesale.scaler.drivers import MOST_BOXES
from wholesale.scaler.drivers.cloudwatch import metric_data
from wholesale.scaler.plan import ScalingPlan

ROOT = Path(__file__).resolve().parents[2]
TREE = ROOT / "deploy" / "terraform"
MODULES = sorted(path for path in (TREE / "modules").iterdir())
TESTED = [*MODULES, TREE / "bootstrap", *sorted((TREE / "environments").iterdir())]
ROOTS = [path for name in ("environments", "examples") for path in sorted((TREE / name).iterdir())]
FOLDERS = sorted({path.parent.relative_to(TREE) for path in TREE.rglob("*.tf")})
CHECK = [sys.executable, str(ROOT / "scripts" / "check-terraform")]
PROGRAM = os.environ.get("TERRAFORM") or shutil.which("tofu") or shutil.which("terraform")

# AWS's names of the services that the scaler calls: the names of boto3's clients.
SERVICES = {"autoscaling", "ec2", "cloudwatch"}


def blocks(kind: str, folder: Path) -> dict[str, str]:
    """Return each ``kind "name" {…}`` at the top level of ``folder``'s files: name to body."""
    found: dict[str, str] = {}
    for path in sorted(folder.glob("*.tf")):
        pattern = rf'^{kind} "([\w-]+)" \{{\n(.*?)^\}}'
        found |= dict(re.findall(pattern, path.read_text(), re.MULTILINE | re.DOTALL))
    return found


def text(*parts: str) -> str:
    return TREE.joinpath(*parts).read_text()


def everything() -> str:
    return "\n".join(path.read_text() for path in sorted(TREE.rglob("*.tf")))


@pytest.mark.parametrize("folder", FOLDERS, ids=str)
def test_every_variable_has_a_type_and_a_description(folder: Path) -> None:
    for name, body in blocks("variable", TREE / folder).items():
        assert re.search(r"^  type\s+=", body, re.MULTILINE), f"{folder}: {name} has no type"
        assert re.search(r'^  description\s+= ".+"$', body, re.MULTILINE), f"{folder}: {name}"


@pytest.mark.parametrize("folder", FOLDERS, ids=str)
def test_every_output_has_a_description(folder: Path) -> None:
    for name, body in blocks("output", TREE / folder).items():
        assert re.search(r'^  description\s+= ".+"$', body, re.MULTILINE), f"{folder}: {name}"


def limited(folder: Path, name: str) -> bool:
    """Return whether ``folder``, or a module that gets the value, refuses a wrong ``name``."""
    body = blocks("variable", folder)[name]
    if "validation {" in body or re.search(r"^  type\s+= bool$", body, re.MULTILINE):
        return True
    for module in blocks("module", folder).values():
        source = re.search(r'^  source\s+= "(.*)"$', module, re.MULTILINE)
        assert source is not None
        # An argument may continue in lines that are indented further, and end with a bracket.
        arguments = re.findall(r"^  (\w+)\s+= (.*(?:\n(?:    |  [\])}]).*)*)", module, re.MULTILINE)
        used = [word for word, value in arguments if re.search(rf"\bvar\.{name}\b", value)]
        given = (folder / source[1]).resolve()
        if any(word == "for_each" or limited(given, word) for word in used):
            return True
    return False


@pytest.mark.parametrize("root", ROOTS, ids=lambda path: path.name)
def test_a_wrong_value_from_an_operator_is_refused_with_a_reason(root: Path) -> None:
    assert [name for name in blocks("variable", root) if not limited(root, name)] == []


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.name)
def test_every_number_has_limits(module: Path) -> None:
    numbers = [name for name, body in blocks("variable", module).items() if "number" in body]
    assert [name for name in numbers if not limited(module, name)] == []


@pytest.mark.parametrize("environment", ["production", "staging"])
def test_an_environment_hands_on_all_that_it_asks_for(environment: str) -> None:
    folder = TREE / "environments" / environment
    others = (path for path in folder.glob("*.tf") if path.name != "variables.tf")
    code = "\n".join(path.read_text() for path in others)
    unused = [n for n in blocks("variable", folder) if not re.search(rf"\bvar\.{n}\b", code)]
    assert unused == []


@pytest.mark.parametrize("module", TESTED, ids=lambda path: path.name)
def test_every_limit_of_a_module_is_tried(module: Path) -> None:
    tests = "\n".join(path.read_text() for path in (module / "tests").glob("*.tftest.hcl"))
    limited = [name for name, body in blocks("variable", module).items() if "validation {" in body]
    refused = set(re.findall(r"expect_failures = \[var\.(\w+)\]", tests))
    assert sorted(set(limited) - refused) == []


@pytest.mark.parametrize("module", TESTED, ids=lambda path: path.name)
def test_every_refusal_is_a_sentence_that_says_what_is_allowed(module: Path) -> None:
    for name, body in blocks("variable", module).items():
        for message in re.findall(r'error_message = "(.*)"$', body, re.MULTILINE):
            assert message.endswith("."), message
            assert re.search(r"\b(must|may)\b", message), message
            assert name.split("_")[0] in message, f"{name}: {message}"


def test_there_is_a_module_for_each_part_of_a_fabric() -> None:
    asked = {"network", "brokers", "cassandra", "retail", "edge", "routing", "observability", "iam"}
    assert asked <= {module.name for module in MODULES}


def test_there_is_no_nat() -> None:
    assert "aws_nat_gateway" not in everything()


def test_no_secret_gets_into_the_state() -> None:
    holders = (
        "aws_secretsmanager_secret_version",
        "aws_iam_access_key",
        "random_password",
        "tls_private_key",
    )
    assert [name for name in holders if name in everything()] == []


def test_every_machine_needs_a_token_for_its_metadata() -> None:
    for module in MODULES:
        code = "\n".join(path.read_text() for path in module.glob("*.tf"))
        makers = len(
            re.findall(r'^resource "aws_(?:instance|launch_template)"', code, re.MULTILINE)
        )
        assert code.count('http_tokens   = "required"') == makers, module.name


def test_the_core_may_exactly_what_the_scaler_calls() -> None:
    called = set()
    for path in (ROOT / "wholesale" / "scaler" / "drivers").glob("*.py"):
        called |= set(re.findall(r"\bclient\.([a-z_]+)\(", path.read_text()))
    statements = re.search(r"^  scaler = \[\n(.*?)^  \]", text("modules/iam/main.tf"), re.M | re.S)
    assert statements is not None
    allowed = re.findall(r'"(\w+):([A-Z]\w+)"', statements[1])
    camel = {"".join(word.title() for word in name.split("_")) for name in called}
    assert {name for _, name in allowed} == camel
    assert {service for service, _ in allowed} == SERVICES


def test_policies_and_alarms_are_about_metrics_that_a_scaler_puts() -> None:
    put = metric_data(
        {
            "scaler": "oregon-scaler-1",
            "region": "oregon",
            "wanted": 3,
            "state": "well",
            "counts": {},
            "sums": [{"name": "readers", "value": 1}, {"name": "carried", "value": 1}],
            "driver": {"state": "well"},
        }
    )
    names = {each["MetricName"] for each in put}
    dimensions = {each["Name"] for each in put[0]["Dimensions"]}
    retail, alarms = text("modules/retail/main.tf"), text("modules/observability/main.tf")
    assert 'metric_name = "WantedBoxes"' in retail
    found = re.search(r"^  watched_metrics = \{\n(.*?)^  \}", alarms, re.MULTILINE | re.DOTALL)
    assert found is not None
    assert {"WantedBoxes", *re.findall(r"^    (\w+)\s+= \{", found[1], re.MULTILINE)} <= names
    assert set(re.findall(r'^\s+name  = "(\w+)"', retail, re.M)) - {"AutoScalingGroupName"} == (
        dimensions
    )


def test_boxes_are_planned_as_scalers_plan_them() -> None:
    plan = blocks("variable", TREE / "modules" / "retail")["plan"]
    defaults = {
        name: float(value)
        for name, value in re.findall(r"(\w+)\s+= optional\(number, (\d+)\)", plan)
    }
    theirs = ScalingPlan()
    assert defaults["most"] == theirs.most
    assert defaults["boot_seconds"] == theirs.boot
    assert defaults["drain_seconds"] == theirs.drain
    assert f"var.plan.most <= {MOST_BOXES}" in plan


@pytest.mark.parametrize("environment", ["production", "staging"])
def test_an_environment_is_two_regions_of_three_zones_and_a_proxy_in_a_third(
    environment: str,
) -> None:
    values = text("environments", environment, "environment.auto.tfvars")
    found = re.findall(r"zones += \[(.*)\]", values)
    zones = [re.findall(r'"([a-z0-9-]+)"', each) for each in found]
    assert [len(set(each)) for each in zones] == [3, 3, 3]
    regions = [{zone[:-1] for zone in each} for each in zones]
    assert all(len(each) == 1 for each in regions)
    assert set.union(*regions) == set(re.findall(r' aws_region = "(.*)"', values))
    assert len(set.union(*regions)) == 3


@pytest.mark.parametrize("environment", ["production", "staging"])
def test_two_operators_cant_apply_at_once(environment: str) -> None:
    backend = text("environments", environment, "backend.tf")
    assert re.search(r"^    use_lockfile = true$", backend, re.MULTILINE)
    assert re.search(r"^    encrypt +\= true$", backend, re.MULTILINE)
    assert re.search(rf'^    key +\= "newsfabric/{environment}.tfstate"$', backend, re.MULTILINE)


def test_a_machine_without_terraform_is_reported_with_what_to_install() -> None:
    done = subprocess.run(CHECK, env={"PATH": "/nowhere"}, capture_output=True, text=True)
    assert done.returncode == 1
    assert "error: neither tofu nor terraform is on the PATH" in done.stderr
    assert "https://opentofu.org/docs/intro/install/" in done.stderr


def test_a_folder_that_isnt_there_is_named() -> None:
    done = subprocess.run([*CHECK, "modules/atlantis"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "no such folder in deploy/terraform: modules/atlantis" in done.stderr


@pytest.fixture(scope="module")
def program() -> str:
    if PROGRAM is None:
        pytest.skip("neither tofu nor terraform is on the PATH")
    return PROGRAM


@pytest.fixture(scope="module")
def provider(program: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Skip the test where the AWS provider can't be installed: no registry, no mirror."""
    folder = tmp_path_factory.mktemp("provider")
    shutil.copy(TREE / "modules" / "network" / "versions.tf", folder)
    command = [program, "init", "-input=false", "-no-color"]
    done = subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, "CHECKPOINT_DISABLE": "1"},
    )
    if done.returncode != 0:
        reason = " ".join((done.stderr or done.stdout).split())[:300]
        pytest.skip(f"no AWS provider to be had here: {reason}")


def test_it_is_formatted(program: str) -> None:
    command = [program, "fmt", "-check", "-recursive", "-diff", "-no-color"]
    done = subprocess.run(command, cwd=TREE, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("folder", FOLDERS, ids=str)
@pytest.mark.usefixtures("provider")
def test_it_fits_the_providers_schema_and_its_tests_pass(folder: Path) -> None:
    done = subprocess.run([*CHECK, str(folder)], capture_output=True, text=True)
    assert f"ok       {folder}\n" in done.stdout, done.stdout + done.stderr
