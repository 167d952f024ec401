"""The types of messages: the data plane and the document have those of the one table."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest
from fake_dataplane import READER, decoded

from gateway.native import commands
from gateway.native.table import FORMS, MAGIC, VERSION, CommandKind, EventKind
from gateway.native.wire import decode, encode
from gateway.process.settings import GatewaySettings

ROOT = Path(__file__).parents[3]
RUST = ROOT / "dataplane/src/control"
PAGE = (ROOT / "docs/dataplane-protocol.md").read_text()
# Values of the forms that aren't made of others.
VALUES: dict[str, Any] = {
    **{"u8": 1, "u16": 258, "u32": 1 << 31, "u64": 1 << 63, "i64": -2, "flag": True},
    **{"text8": "\u00fc", "text16": "\u00fc" * 200, "bytes16": b"\xff", "bytes32": b"\0" * 70_000},
    **{"id": bytes(range(16)), "magic": MAGIC, "connections": READER * 2},
}


def value(form: str) -> Any:
    if form in VALUES:
        return VALUES[form]
    meaning = FORMS[form]
    if meaning.startswith("["):
        return [value(meaning[1:].partition("]")[0])] * 2
    if " " in meaning:
        return tuple(value(field.split()[-1]) for field in meaning.split(", "))
    return value(meaning)


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "scripts/protocol"))


def test_what_is_made_from_the_table_is_up_to_date(script: dict[str, Any]) -> None:
    assert (RUST / "table.rs").read_text() == script["rust"](), "run scripts/protocol"
    assert script["page"](PAGE) == PAGE, "run scripts/protocol"


@pytest.mark.parametrize("kind", [*CommandKind, *EventKind], ids=lambda kind: kind.name.lower())
def test_a_message_is_read_as_it_was_written(kind: CommandKind | EventKind) -> None:
    fields = [field.split() for field in kind.body.split(", ") if field]
    values = {field[0]: value(field[-1]) for field in fields}
    message = encode(kind, *values.values())
    assert (message[4], decode(kind, message[5:])) == (kind, values)


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
