"""examples/go, examples/node, examples/ruby: publishers that wait for a receipt, with a world."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from samples import SAMPLES, command, run
from worlds import World

pytestmark = [pytest.mark.world, pytest.mark.timeout(420)]

RUN_WITHIN = 60.0


@pytest.fixture(scope="module", params=SAMPLES)
def sample(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return the command of the sample, without its arguments."""
    return command(request.param, tmp_path_factory.mktemp("samples"))


def test_a_sample_prints_the_receipt_of_its_message(
    sample: list[str], world: World, tmp_path: Path
) -> None:
    arguments = [world.amqp_url("oregon"), "cms", "news.breaking", '{"headline":"Größe"}']
    done = run([*sample, *arguments], tmp_path, RUN_WITHIN)
    assert done.returncode == 0, done.stderr + done.stdout
    receipt = json.loads(done.stdout)
    assert (receipt["status"], receipt["topic"]) == ("routed", "news.breaking")


def test_a_sample_prints_why_its_message_was_rejected(
    sample: list[str], world: World, tmp_path: Path
) -> None:
    done = run(
        [*sample, world.amqp_url("oregon"), "cms", "nobody.knows", "{}"], tmp_path, RUN_WITHIN
    )
    assert done.returncode == 1, done.stderr + done.stdout
    assert json.loads(done.stdout)["reason"] == "topic_not_allowed"
