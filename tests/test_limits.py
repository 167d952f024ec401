"""The limits of a message are in several languages, settings and pages: all have the same values.

Python code that imports them from :mod:`newsfabric.messages.envelope` needs no test here.
"""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
import yaml

from localfabric.world.broker import WorldBroker, entrance
from newsfabric.amqp.fields import MAX_TABLE_BYTES
from newsfabric.messages.envelope import DEFAULT_LIMITS, MAX_EXPIRATION, MAX_INTEGER
from newsfabric.reader.frames import MAX_LINE_BYTES
from newsfabric.topics import MAX_TOPIC_BYTES
from wholesale.frontdesk.api.handlers import MAX_REQUEST_BYTES

ROOT = Path(__file__).parent.parent
KIB = 1024
BODY, TEXT = DEFAULT_LIMITS.max_body_bytes, DEFAULT_LIMITS.max_text_bytes
ENTRANCE = entrance(
    WorldBroker(
        name="client",
        folder=Path(),
        amqp_port=1,
        management_port=2,
        distribution_port=3,
        epmd_port=4,
    )
)
JAVA = "clients/java/src/main/java/io/newsfabric/publish/Sending.java"
PHP = "clients/php/src/Publisher.php"
LOCUSTS = "loadtest/locusts/wire.py"
CROWD = "bench/fanout/src/bin/newsfabric-crowd/pages/incoming.rs"
PUBLISHING = "docs/publishing.md"
# Bytes that a push needs for a byte of the body, written as "\u0000".
ESCAPED = 6


def written(file: str, name: str) -> int:
    """Return the only constant ``name`` of ``file``: a product of numbers, or a shifted one."""
    text = (ROOT / file).read_text("utf-8")
    (found,) = re.findall(rf"\b{name}(?:: \w+)? = ([\d_ *<]+);?$", text, re.MULTILINE)
    number, _, shift = found.partition("<<")
    return math.prod(int(factor) for factor in number.split("*")) << int(shift or 0)


@pytest.mark.parametrize(
    ("file", "name", "limit"),
    [
        (JAVA, "MAX_BODY", BODY),
        (JAVA, "MAX_TEXT", TEXT),
        (PHP, "MAX_BODY", BODY),
        (PHP, "MAX_TEXT", TEXT),
    ],
)
def test_libraries_in_other_languages_refuse_what_routers_do(
    file: str, name: str, limit: int
) -> None:
    assert written(file, name) == limit


@pytest.mark.parametrize(
    ("page", "error"),
    [
        (PUBLISHING, f"UTF-8 JSON, 1 byte to {BODY // KIB} KiB."),
        (
            PUBLISHING,
            f"refuse a body of more than {BODY // KIB} KiB, and a `key` of more than {TEXT}",
        ),
        (PUBLISHING, f"nothing in it, or more than {BODY // KIB} KiB |"),
        (PUBLISHING, f"the body has more than {BODY // KIB} KiB |"),
        (PUBLISHING, f"your idempotency key, at most {TEXT} bytes."),
        (PUBLISHING, f"at most {MAX_TOPIC_BYTES} bytes; an entry of `topics.toml`"),
        (PUBLISHING, f"as text; at most {MAX_EXPIRATION})"),
        (PUBLISHING, f"a number from 1000 to {MAX_EXPIRATION})"),
        (PUBLISHING, f"All headers together may take {MAX_TABLE_BYTES // KIB} KiB"),
        (PUBLISHING, f"one frame ({ENTRANCE.frame_max // KIB} KiB at a client cluster)"),
        (PUBLISHING, f"A body of more than {ENTRANCE.message_max // KIB} KiB closes the channel"),
        (PUBLISHING, f"{MAX_REQUEST_BYTES // KIB} KiB in all."),
        ("docs/architecture.md", f"JSON up to {BODY // KIB} KiB and"),
        ("clients/java/README.md", f"A body over {BODY // KIB} KiB isn't even sent"),
        ("clients/php/README.md", f"A body over {BODY // KIB} KiB isn't even sent"),
        ("clients/python/README.md", f"A body over {BODY // KIB} KiB isn't even sent"),
    ],
)
def test_pages_say_what_is_so(page: str, error: str) -> None:
    assert error in " ".join((ROOT / page).read_text("utf-8").split())


def test_versions_go_as_far_as_the_page_says() -> None:
    assert MAX_INTEGER == 2**53 - 1
    assert "whole number, 0 to 2⁵³−1;" in (ROOT / PUBLISHING).read_text("utf-8")


@pytest.mark.parametrize("part", ["client", "proxy"])
def test_brokers_take_larger_messages_than_routers_so_that_a_receipt_says_why(part: str) -> None:
    variables = yaml.safe_load((ROOT / "deploy/ansible/group_vars/all.yml").read_text("utf-8"))
    assert variables["newsfabric_message_max"][part] == ENTRANCE.message_max == 2 * BODY
    assert variables["newsfabric_frame_max"][part] == ENTRANCE.frame_max > MAX_TABLE_BYTES


@pytest.mark.parametrize(
    "most", [MAX_LINE_BYTES, written(LOCUSTS, "_MAX_LINE"), written(CROWD, "MOST_REST")]
)
def test_readers_take_the_largest_body_with_all_of_it_escaped(most: int) -> None:
    assert most > 2 * ESCAPED * BODY


def test_a_request_may_spell_the_largest_body_as_long_as_json_can() -> None:
    assert MAX_REQUEST_BYTES > ESCAPED * BODY
