"""The actions behind the options of ``newsfabric top``."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from newsfabric.console import console
from newsfabric.errors import ConfigError
from newsfabric.safe_output import echo
from newsfabric.tokens.bearer import check_private
from operations.hosts.described import read_hosts
from operations.top.frontdesks import Frontdesks, fetch_once, is_frontdesk_url, login_from
from operations.top.lines import Sort, View
from operations.top.screen import has_gone, listing
from operations.top.state import MAX_FILTER, FollowedThing, ViewState
from operations.top.terminal import Top
from operations.worlds import running_world

# A pipe has no width: wide enough for every column.
_WIDE: Final = 160


def frontdesk_urls(state: Path, region: str | None, given: Sequence[str]) -> list[str]:
    """Return the frontdesks to ask, in their order: those ``given``, else those of the world in
    ``state``, with ``region``'s first. ConfigError for one that is no http or https URL."""
    for url in given:
        if not is_frontdesk_url(url):
            raise ConfigError(f"--frontdesk {url}: write http://HOST:PORT or https://HOST")
    if given:
        return list(given)
    if (hosts := read_hosts(state)) is not None:
        return hosts.frontdesk_urls(region)
    # A world that isn't ready, or partly dead, is accepted: that is when the board is needed.
    return running_world(state).frontdesk_urls(region)


def run_top(
    urls: Sequence[str],
    token_file: Path | None,
    *,
    over_http: bool,
    view: str,
    sort: str,
    reverse: bool,
    text: str,
    followed: Mapping[str, str | None],
    once: bool,
    as_json: bool,
) -> None:
    """Show the board of the first of ``urls`` that answers, until the operator quits.

    ConfigError for two things to follow, or a token that would be sent over plain http.
    """
    wanted = [
        FollowedThing(View(kind), name) for kind, name in followed.items() if name is not None
    ]
    if len(wanted) > 1:
        raise ConfigError("--box, --topic and --publisher: follow one thing")
    if token_file is not None and not over_http:
        check_private(urls)
    state = ViewState(
        view=wanted[0].view if wanted else View(view),
        sort=Sort(sort),
        reverse=reverse,
        filter=text[:MAX_FILTER],
        followed=wanted[0] if wanted else None,
    )
    login = login_from(token_file)
    screen = console()
    can_be_drawn_on = (
        screen.is_terminal and not screen.is_dumb_terminal and sys.stdin.isatty() and not once
    )
    if as_json and not once:
        frontdesks = Frontdesks(
            urls, login, lambda _board, document: _print(document), _warn, over_http=over_http
        )
        asyncio.run(frontdesks.run())
    elif can_be_drawn_on and not as_json:
        asyncio.run(Top(screen, urls, login, state, over_http=over_http).run())
    else:
        board, document = asyncio.run(fetch_once(urls, login))
        if as_json:
            _print(document)
            return
        page = screen if screen.is_terminal else console(width=_WIDE)
        for row in listing(board, state, page.width):
            row.rstrip()
            page.print(row, no_wrap=True)
        if state.followed is not None and has_gone(board, state.followed):
            sys.exit(1)


def _print(document: dict[str, Any]) -> None:
    # In ASCII: names in it may hold control characters of a terminal.
    echo(json.dumps(document, separators=(",", ":")))


def _warn(trouble: str) -> None:
    if trouble:
        echo(trouble, err=True)
