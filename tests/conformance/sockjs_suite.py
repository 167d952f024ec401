"""The base of SockJS cases: their list, and assertions that several of them share."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Awaitable, Callable
from typing import Any, Final

from dialogue import Dialogue, Response, Stream

PRELUDE: Final = b"h" * 2048 + b"\n"
FORM: Final = "application/x-www-form-urlencoded"
GO_AWAY: Final = 'c[3000,"Go away!"]'
SECOND: Final = b'c[2010,"Another connection still open"]\n'
# SockJS 1.0, "JSON Unicode Encoding": characters that a server must escape.
MANGLED: Final = re.compile("[\x00-\x1f\u200c-\u200f\u2028-\u202f\u2060-\u206f\ufff0-\uffff]")
SCRIPT_END: Final = b"</script>\r\n"


@dataclasses.dataclass(frozen=True, slots=True)
class Case:
    """A dialogue with one endpoint."""

    name: str
    endpoint: str
    hold: Callable[[Dialogue], Awaitable[None]]


CASES: Final[list[Case]] = []


def case(endpoint: str = "echo") -> Callable[[Any], Any]:
    """Add a function to the suite."""

    def add(hold: Callable[[Dialogue], Awaitable[None]]) -> Any:
        CASES.append(Case(hold.__name__, endpoint, hold))
        return hold

    return add


def not_cached(answer: Response) -> None:
    directives = {part.strip() for part in answer.headers["cache-control"].split(",")}
    assert directives == {
        "no-store", "no-cache", "no-transform", "must-revalidate", "max-age=0",
    }  # fmt: skip
    assert not {"expires", "last-modified"} & answer.headers.keys()


def cached(answer: Response) -> None:
    assert "public" in answer.headers["cache-control"]
    assert re.search("max-age=[1-9][0-9]{6}", answer.headers["cache-control"])
    assert "expires" in answer.headers
    assert "last-modified" not in answer.headers


def shared_with(answer: Response, origin: str) -> None:
    assert answer.headers["access-control-allow-origin"] == origin
    assert answer.headers["access-control-allow-credentials"] == "true"


def is_type(answer: Response, content_type: str) -> None:
    assert answer.headers["content-type"].replace(" ", "").lower().startswith(content_type)


async def read_info(d: Dialogue) -> dict[str, Any]:
    """Return /info; it is different each time, so it isn't compared."""
    async with d.stream("GET", "/info", Connection="close") as stream:
        found: dict[str, Any] = json.loads(await stream.rest())
    return found


async def poll(d: Dialogue, **headers: str) -> bytes:
    answer = await d.post(f"{d.session}/xhr", **headers)
    assert answer.status == 200
    return answer.body


async def post_verbs(d: Dialogue, body: bytes, **headers: str) -> None:
    answer = await d.post(f"{d.session}/xhr_send", body, **headers)
    assert (answer.status, answer.body) == (204, b"")


async def ends(stream: Stream) -> None:
    assert await stream.rest() == b""
