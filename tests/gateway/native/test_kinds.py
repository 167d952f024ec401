"""The types of messages: the data plane and the document have those of the one table."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest
from fake_dataplane import decoded

from gateway.native import commands
from gateway.native.table import VERSION
from gateway.process.settings import GatewaySettings

ROOT = Path(__file__).parents[3]
RUST = ROOT / "dataplane/src/control"
PAGE = (ROOT / "docs/dataplane-protocol.md").read_text()


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "scripts/protocol"))


def test_what_is_made_from_the_table_is_up_to_date(script: dict[str, Any]) -> None:
    assert (RUST / "table.rs").read_text() == script["rust"](), "run scripts/protocol"
    assert script["page"](PAGE) == PAGE, "run scripts/protocol"


def test_the_example_speaks_the_tables_version() -> None:
    example = runpy.run_path(str(ROOT / "examples/dataplane_driver.py"))
    assert example["VERSION"] == VERSION


def test_both_ends_and_the_document_name_the_same_settings() -> None:
    (sent,) = decoded(commands.settings(GatewaySettings(name="b", region="r"), capacity=1))
    sent_names = set(sent.fields)
    struct = (RUST / "settings.rs").read_text().split("pub struct Settings {")[1].split("}")[0]
    assert set(re.findall(r"pub (\w+):", struct)) == sent_names
    section = PAGE.split("\n### settings")[1].split("\nThe data plane closes")[0]
    cells = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
    assert {name for cell in cells for name in re.findall(r"`(\w+)`", cell)} == sent_names
