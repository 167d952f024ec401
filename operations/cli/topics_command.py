"""``newsfabric topics``: checks a topics.toml before anything runs with it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from newsfabric.errors import ConfigError
from newsfabric.safe_output import echo
from newsfabric.topics import is_topic, load_topics
from operations.cli.options import examples, json_option
from operations.topic_checks import findings, match


def _file_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--topics",
        "file",
        type=click.Path(dir_okay=False, path_type=Path),
        default=Path("topics.toml"),
        show_default=True,
        help="The file in question.",
    )(command)


@click.group(
    epilog=examples("newsfabric topics check", "newsfabric topics match news.braking"),
)
def topics() -> None:
    """Check a topics.toml, and show which of its entries a topic falls under."""


@topics.command(
    epilog=examples(
        "newsfabric topics check",
        "newsfabric topics check --topics new.toml --json | jq '.[].detail'",
    )
)
@_file_option
@json_option
def check(file: Path, as_json: bool) -> None:
    """List the patterns that are never used.

    Earlier entries match all their topics. Exits with 1 if there are any, or if the file can't be
    read. Publishers' patterns are checked, too: a pattern is of no use if no entry has a topic for
    it.
    """
    table = load_topics(file)
    found = findings(table)
    if as_json:
        echo(json.dumps([dataclasses.asdict(each) for each in found], indent=2))
    else:
        for each in found:
            echo(f"{file}: {each.where}: {each.detail}")
    if found:
        raise ConfigError(f"{file}: patterns of no use: {len(found)}")
    if not as_json:
        echo(f"{file}: all {len(table.policies)} entries are of use")


@topics.command(
    name="match",
    epilog=examples(
        "newsfabric topics match news.braking",
        "newsfabric topics match news.breaking --json | jq -r .class",
    ),
)
@click.argument("topic")
@_file_option
@json_option
def match_(topic: str, file: Path, as_json: bool) -> None:
    """Print the entry that matches TOPIC, and its class. Exits with 1 if there is none."""
    table = load_topics(file)
    if not is_topic(topic):
        raise ConfigError(f"{topic!r} is no topic: dotted words of A-Z a-z 0-9 _ -, at most 255")
    found = match(table, topic)
    if as_json:
        echo(json.dumps(found, indent=2))
    else:
        for line in _lines(found):
            echo(line)
    if found["entry"] is None:
        raise ConfigError(f"{file}: no entry matches {topic}: it would be `topic_not_allowed`")


def _lines(found: Mapping[str, Any]) -> list[str]:
    lines = []
    if found["entry"] is not None:
        latest = ", latest first" if found["latest"] else ""
        lines.append(
            f"{found['topic']}: {found['class']}, by entry {found['entry']} ({found['pattern']}): "
            f"access {found['access']}, keep {found['keep']}, slow {found['slow']}{latest}"
        )
        if found["publishers"] is not None:
            lines.append(f"  published by: {', '.join(found['publishers']) or 'nobody'}")
    lines += [f"  entry {each['entry']} ({each['pattern']}) comes later" for each in found["also"]]
    lines += [
        f"  did you mean {each['topic']}? entry {each['entry']}, {each['class']}"
        for each in found["like"]
    ]
    return lines
