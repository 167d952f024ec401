"""Twenty-five wrong uses, of commands and of a frontdesk, and the complete reply to each.

The replies were tried by hand and judged good: each states the error and the remedy. This list
keeps them so: a change of a reply is a change of the list. No world is needed.

Replies that other tests check aren't repeated: without a world, an unknown command and a bad
recording (test_commands.py, test_recording.py); options of `mirror`, `logs`, `certs`
(test_mirror.py, test_logs_command.py, tests/operations/certificates/test_certs.py). Over HTTP: a
missing or wrong API key, a body that is missing, no JSON or without a topic, another's app_id
(tests/wholesale/frontdesk/api/test_publishing_by_curl.py, test_publication.py).
"""

from __future__ import annotations

import dataclasses
import json
import shlex
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner
from house import JSON, SETTINGS, House, open_house

from newsfabric.topics import parse_topics
from operations.cli import cli
from wholesale.frontdesk.api.access import ApiKey

_CHECKOUT: Final = Path(__file__).resolve().parents[3]
_KEY: Final = ApiKey("0123456789abcdef")
_TOPICS: Final = parse_topics(
    {"topic": [{"pattern": "news.*"}, {"pattern": "user.*", "access": "owner"}]}
)

#: The words after `newsfabric`, the exit code, and the error. Of a usage error only the last line,
#: which follows the usage and the hint at --help.
TYPED: Final = [
    ("up --regions a,a", 1, "error: a region is named twice"),
    (
        "up --regions 'A b'",
        1,
        "error: 'A b' is no region name (a-z, 0-9 and -, at most 40)",
    ),
    ("up --retail 0", 1, "error: retail boxes: 0 is not in 1..9"),
    ("up --port-base 99999", 1, "error: port base: 99999 is not in 1024..65235"),
    ("up --scale 3", 2, "Error: Invalid value for '--scale': write LEAST:MOST, like 1:6"),
    ("publish news.breaking", 2, "Error: Missing argument 'BODY'."),
    (
        "topics match news..breaking",
        1,
        "error: 'news..breaking' is no topic: dotted words of A-Z a-z 0-9 _ -, at most 255",
    ),
    ("chaos kill", 2, "Error: name at least one part; `newsfabric status` lists them"),
    (
        "users router --passwords d",
        1,
        "error: write PLACE/ROLE, where ROLE is client, core, proxy or box",
    ),
    (
        "top --frontdesk localhost:18005",
        1,
        "error: --frontdesk localhost:18005: write http://HOST:PORT or https://HOST",
    ),
    (
        "schema plan --store cassandra://db-1/News",
        1,
        "error: 'cassandra://db-1/News': the keyspace is a-z, 0-9 and _, and begins with a letter; "
        "write cassandra://HOST[:PORT],…/KEYSPACE?dc=NAME",
    ),
    ("certs issue 'core 1'", 1, "error: 'core 1' is no host name and no IP address"),
    (
        "certs issue core-1 --lifetime year",
        2,
        "Error: Invalid value for '--lifetime': 'year' is no time: write days or hours, 90d or 36h",
    ),
    (
        "certs check a.pem b.pem --key key.pem",
        2,
        "Error: --key is of one certificate: check one PATH at a time",
    ),
]

_PUBLICATION: Final = '{"topic": "news.world", "body": 1}'
_BAD: Final = "bad_request"
#: The request and its body, and the status, reason and detail of the reply.
ASKED: Final = [
    (
        "POST /publish?dryrun",
        _PUBLICATION,
        400,
        _BAD,
        "unknown parameter 'dryrun'; there is dry_run. Nothing was sent",
    ),
    (
        "POST /publish?dry_run=maybe",
        _PUBLICATION,
        400,
        _BAD,
        "dry_run must be true or false, or nothing",
    ),
    (
        "POST /publish",
        '{"topic": "news.world", "boddy": 1}',
        400,
        _BAD,
        "unknown field 'boddy'; there are app_id, body, expiration, key, message_id, topic, "
        "traceparent, type, version",
    ),
    (
        "POST /publish",
        '{"topic": "news.world", "body": 1, "expiration": 30}',
        400,
        _BAD,
        "expiration must be a whole number from 1000 to 315360000000",
    ),
    (
        "POST /publish?dry_run",
        '{"topic": "sport.results", "body": 1}',
        422,
        "topic_not_allowed",
        "no entry of topics.toml matches this topic",
    ),
    (
        "POST /publish?dry_run",
        '{"topic": "news..world", "body": 1}',
        422,
        "bad_topic",
        "a topic is dotted words, at most 255 bytes",
    ),
    (
        "GET /publish",
        None,
        405,
        "method_not_allowed",
        "POST a JSON object, or a list of them",
    ),
    ("GET /history?topic=sport.results", None, 404, "unknown_topic", "no such topic"),
    ("GET /history?topic=user.42", None, 403, "permission_denied", "this topic isn't public"),
    (
        "GET /history?topic=news.world&limit=1000",
        None,
        400,
        _BAD,
        "limit must be from 1 to 200",
    ),
    ("GET /histroy?topic=news.world", None, 404, "not_found", "there is nothing here"),
]


def test_there_are_twenty_five() -> None:
    assert len(TYPED) + len(ASKED) == 25


@pytest.mark.parametrize(("typed", "code", "expected"), TYPED)
def test_a_command_says_what_is_wrong_and_what_to_do(
    typed: str, code: int, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(_CHECKOUT / "topics.toml", tmp_path)
    done = CliRunner().invoke(cli, shlex.split(typed))
    assert done.exit_code == code
    assert done.stdout == ""
    *before, last = done.stderr.splitlines()
    assert last == expected
    if code == 1:
        assert before == []
    else:
        usage, tried, empty = before
        words = [word for word in shlex.split(typed) if word.isalpha()]
        assert usage.startswith(f"Usage: {cli.name} {words[0]}")
        assert tried.startswith(f"Try '{cli.name} {words[0]}")
        assert tried.endswith("--help' for help.")
        assert empty == ""


@pytest.fixture
async def house() -> AsyncIterator[House]:
    settings = dataclasses.replace(SETTINGS, api_keys=(_KEY,))
    async with open_house(_TOPICS, settings) as opened:
        yield opened


@pytest.mark.parametrize(("asked", "body", "status", "reason", "detail"), ASKED)
async def test_a_frontdesk_says_what_is_wrong_and_what_to_do(
    house: House, asked: str, body: str | None, status: int, reason: str, detail: str
) -> None:
    method, path = asked.split()
    headers = {"Content-Type": JSON, "X-API-Key": _KEY.key}
    answer = await house.fetch(path, method=method, body=body, headers=headers)
    assert (answer.code, json.loads(answer.body)) == (
        status,
        {"error": {"reason": reason, "detail": detail}},
    )
    assert house.published() == []
