"""The dependency rule of docs/architecture.md, checked in the source itself.

Only shipped code is bound by it: tests, benches and examples may talk to RabbitMQ with a bare pika,
as a stranger would.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).parent.parent
SERVICES = {"gateway", "wholesale", "retail", "shovels"}
#: It runs services as programs; only modules that must run a world import it.
LAPTOP = "localfabric"
#: Programs of operators and machines: no service needs them.
ROOM = "operations"
SHIPPED = {"newsfabric", *SERVICES, ROOM, LAPTOP}
#: Libraries that only these places may import, so that one place handles their faults.
RESERVED = {
    "pika": ("newsfabric/amqp/",),
    "sockjs": ("gateway/transports/sockjs/sockjs_tornado.py",),
    "wsproto": ("gateway/wire/rfc6455.py",),
    "cassandra": ("newsfabric/store/_cassandra_",),
    # Two, since a box has no scaler: each has an error of its own for AWS's refusals.
    "boto3": ("wholesale/scaler/drivers/aws.py", "operations/instance/cloud.py"),
    "botocore": ("wholesale/scaler/drivers/aws.py", "operations/instance/cloud.py"),
    LAPTOP: (f"{LAPTOP}/", "wholesale/scaler/drivers/world.py"),
    # Commands of localfabric are added to the command `newsfabric`.
    ROOM: (f"{ROOM}/", f"{LAPTOP}/"),
}


def violations(sources: Mapping[str, str]) -> list[str]:
    """Return one line for each breach in ``sources``, a map of path to Python source."""
    found = []
    for path, source in sorted(sources.items()):
        package = PurePosixPath(path).parts[0]
        if package == "cassandra":
            found.append(f"{path}: Python below cassandra/ would hide the driver of that name")
        elif package in SHIPPED:
            found += [f"{path}: {breach}" for breach in _breaches(path, package, source)]
    return found


def _breaches(path: str, package: str, source: str) -> Iterator[str]:
    for imported in sorted(set(_imported(ast.parse(source)))):
        if imported in SERVICES and imported != package:
            yield f"imports {imported}"
        elif imported in RESERVED and not path.startswith(RESERVED[imported]):
            yield f"imports {imported}, which belongs to {', '.join(RESERVED[imported])}"


def _imported(tree: ast.Module) -> Iterator[str]:
    """Yield the top-level package of each absolute import, anywhere in the file."""
    for node in ast.walk(tree):
        match node:
            case ast.Import():
                names = [alias.name for alias in node.names]
            case ast.ImportFrom(level=0, module=str(name)):
                names = [name]
            case ast.Call(
                func=ast.Name(id="import_module" | "__import__")
                | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                names = [name]
            case _:
                continue
        yield from (name.partition(".")[0] for name in names)


def test_the_code_keeps_the_rule() -> None:
    folders = [ROOT / name for name in sorted({*SHIPPED, "cassandra"})]
    sources = {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
        for folder in folders
        for path in folder.rglob("*.py")
    }
    assert sources.keys() >= {f"{package}/__init__.py" for package in SHIPPED}
    assert violations(sources) == []


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("localfabric/world/processes.py", "import gateway"),
        ("newsfabric/settings.py", "from shovels.plan import diff"),
        ("operations/worlds.py", "from localfabric.world import finding"),
        ("newsfabric/topics.py", "from operations import topic_checks"),
        ("shovels/cli.py", "from operations.cli import options"),
        ("operations/instance/settle.py", "import retail.agent"),
        ("shovels/cli.py", "def late() -> None:\n    from localfabric.world.paths import Paths"),
        ("operations/cli/app.py", "import importlib\nimportlib.import_module('retail.agent')"),
        ("wholesale/router.py", "from gateway import hub"),
        (
            "gateway/memory/hub.py",
            "if True:\n    def late() -> None:\n        import wholesale.router",
        ),
        ("wholesale/router.py", "from pika.adapters import asyncio_connection"),
        ("newsfabric/amqp_helpers.py", "import pika"),
        ("gateway/transports/websocket.py", "import sockjs.tornado"),
        ("newsfabric/store/sqlite.py", "from cassandra.cluster import Cluster"),
        ("cassandra/migrate.py", ""),
    ],
)
def test_a_breach_is_found(path: str, source: str) -> None:
    (breach,) = violations({path: source})
    assert breach.startswith(f"{path}: ")


@pytest.mark.parametrize(
    ("path", "source"),
    [
        (
            "gateway/memory/hub.py",
            "import gateway.wire.outbox\nfrom newsfabric.messages import envelope",
        ),
        ("gateway/feed/engine.py", "from . import sockjs\nfrom .sockjs import handler"),
        ("gateway/transports/sockjs/sockjs_tornado.py", "from sockjs.tornado import SockJSRouter"),
        ("newsfabric/amqp/connection.py", "import pika"),
        ("localfabric/chaos/run.py", "from localfabric.world import faults"),
        ("localfabric/cli/up.py", "from operations.cli import options"),
        ("wholesale/scaler/drivers/world.py", "from localfabric.world import growing"),
        ("newsfabric/store/_cassandra_cluster.py", "from cassandra.cluster import Cluster"),
        ("localfabric/world/processes.py", "ARGUMENTS = ['-m', 'gateway']"),
        ("tests/amqp/test_publisher.py", "import pika\nimport gateway"),
    ],
)
def test_what_the_rule_allows_is_no_breach(path: str, source: str) -> None:
    assert violations({path: source}) == []
