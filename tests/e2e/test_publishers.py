"""The publishers' libraries into a whole world, as the README has it for PHP."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from client_programs import Program, program
from worlds import ROOT, World

from bench.drivers import LANGUAGES

pytestmark = [pytest.mark.world, pytest.mark.timeout(300)]


@pytest.fixture(params=LANGUAGES)
def publisher(request: pytest.FixtureRequest) -> Program:
    return program(request.param)


async def test_gold_is_routed_and_what_isnt_news_is_rejected(
    publisher: Program, world: World
) -> None:
    urls = [world.amqp_url("oregon"), world.amqp_url("dublin")]
    told = await publisher.run(
        {"regions": urls, "app_id": "cms"},
        {"topic": "news.breaking", "options": {"key": "k", "copies": 2}},
        {"topic": "nobody.knows"},
        {"topic": "news.world", "options": {"receipt": False}},
    )
    assert told[0]["published"]["routed"] is True
    assert told[0]["published"]["region"] in ("oregon", "dublin")
    assert told[1] == {"error": "Rejected", "reason": "topic_not_allowed"}
    assert told[2]["published"]["routed"] is False


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
    assert re.fullmatch(r"routed in (oregon|dublin) as [0-9a-f-]{36}\n", done.stdout)
