"""The publishers' libraries with a whole world, as in the README of PHP."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from client_programs import Program, program
from worlds import ROOT, World

from bench.drivers import LANGUAGES

pytestmark = [pytest.mark.world, pytest.mark.timeout(420)]


@pytest.fixture(params=LANGUAGES)
def publisher(request: pytest.FixtureRequest) -> Program:
    return program(request.param)


async def test_gold_is_routed_and_what_isnt_news_is_rejected(
    publisher: Program, world: World
) -> None:
    urls = [world.amqp_url("oregon"), world.amqp_url("dublin")]
    result = await publisher.run(
        {"regions": urls, "app_id": "cms"},
        {"topic": "news.breaking", "options": {"key": "k", "copies": 2}},
        {"topic": "nobody.knows"},
        {"topic": "news.world", "options": {"receipt": False}},
    )
    assert result[0]["published"]["routed"] is True
    assert result[0]["published"]["region"] in ("oregon", "dublin")
    assert result[1] == {"error": "Rejected", "reason": "topic_not_allowed"}
    # Either the broker's confirm, which is all it waits for, or the receipt arrived first.
    assert "published" in result[2]


def test_the_readmes_php_works_as_it_is(world: World, tmp_path: Path) -> None:
    program("php")
    readme = (ROOT / "README.md").read_text("utf-8")
    found = re.search(r"cat > hello.php <<'END'\n(.+?)END\n", readme, re.DOTALL)
    assert found is not None
    script = found[1].replace("clients/php", f"{ROOT}/clients/php")
    for region, url in (("oregon", "127.0.0.1:18110"), ("dublin", "127.0.0.1:18210")):
        script = script.replace(f"amqp://{url}/%2F", world.amqp_url(region))
    file = tmp_path / "hello.php"
    file.write_text(script, "utf-8")
    done = subprocess.run(["php", str(file)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr + done.stdout
    assert re.fullmatch(r"routed in (oregon|dublin) as [0-9a-f]{19}\n", done.stdout)


def test_fifteen_lines_without_a_library_get_a_receipt(world: World, tmp_path: Path) -> None:
    document = (ROOT / "docs" / "publishing.md").read_text("utf-8")
    found = re.search(r"```python\n(import secrets.+?)```", document, re.DOTALL)
    assert found is not None
    url = "amqp://guest:guest@127.0.0.1:18110/%2F"
    assert url in found[1]
    file = tmp_path / "fifteen.py"
    file.write_text(found[1].replace(url, world.amqp_url("oregon")), "utf-8")
    command = [sys.executable, str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert re.match(r"b'\{\"status\":\"routed\"", done.stdout)


def test_over_http_the_same_again_has_the_same_id(world: World) -> None:
    url = world.region("oregon")["frontdesk_url"] + "/publish"
    headers = {"Content-Type": "application/json", "Idempotency-Key": "e2e-same-again"}
    body = json.dumps({"topic": "news.world", "body": {"headline": "Hello"}, "app_id": "cms"})

    def publish() -> tuple[int, dict[str, Any]]:
        request = urllib.request.Request(url, body.encode(), headers)
        with urllib.request.urlopen(request, timeout=20) as response:
            return response.status, json.loads(response.read())

    first, again = publish(), publish()
    assert (first[0], again[0]) == (201, 200)
    assert again[1] == first[1] | {"repeated": True}
