"""The table of all differences between our gateway's SockJS and sockjs-node, with the reasons."""

from __future__ import annotations

import dataclasses
import fnmatch
from collections.abc import Iterator
from typing import Final

from dialogue import Notes

ABSENT: Final = "(absent)"


@dataclasses.dataclass(frozen=True, slots=True)
class Found:
    """A field that differs."""

    case: str
    step: str
    field: str
    ours: str
    theirs: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Fields that may differ, by patterns like those of file names; ``why`` is for people."""

    case: str = "*"
    step: str = "*"
    field: str
    ours: str = "*"
    theirs: str = "*"
    why: str

    def explains(self, found: Found) -> bool:
        """Return whether the pattern matches ``found``."""
        return all(
            fnmatch.fnmatchcase(getattr(found, name), getattr(self, name))
            for name in ("case", "step", "field", "ours", "theirs")
        )


def differences(case: str, ours: Notes, theirs: Notes) -> Iterator[Found]:
    """Yield the notes of a case that differ from the other server's."""
    for step, field in sorted(ours.keys() | theirs.keys()):
        here, there = ours.get((step, field), ABSENT), theirs.get((step, field), ABSENT)
        if here != there:
            yield Found(case, step, field, here, there)


DIFFERENCES: Final[tuple[Difference, ...]] = (
    # Texts that no library reads.
    Difference(
        field="body",
        ours="*404: Not Found*",
        theirs="*404 Error*",
        why="the page for what isn't there; the protocol leaves it open",
    ),
    Difference(
        field="content-type",
        ours="text/html;charset=utf-8",
        theirs="text/plain;charset=utf-8",
        why="the type of that page",
    ),
    Difference(
        field="body",
        ours="b'no such session'",
        why="an xhr_send without a session gets an answer with what is missing",
    ),
    Difference(
        case="a_server_without_websockets",
        field="body",
        ours="b'no WebSocket here'",
        why="ours says what isn't there",
    ),
    *(
        Difference(
            case="a_server_without_websockets",
            field=field,
            ours=ours,
            theirs=theirs,
            why="an error is not to be kept: WebSockets may come back",
        )
        for field, ours, theirs in (
            ("cache-control", "no-store", "max-age=31536000, public"),
            ("expires", ABSENT, "there"),
        )
    ),
    Difference(
        case="requests_that_are_no_handshake",
        field="body",
        theirs="*Not a valid websocket request*",
        why="ours says which header is wrong, in the words of SockJS before 1.0",
    ),
    Difference(
        case="iframe_page*",
        field="body",
        ours="*</html>[\\]n*",
        theirs="*</html>'",
        why="our page ends with a line feed",
    ),
    # Headers that only we send.
    Difference(
        field="content-type",
        ours="text/plain;charset=utf-8",
        theirs=ABSENT,
        why="an error's text has its type, so that no browser guesses",
    ),
    Difference(
        field="access-control-allow-origin",
        ours="[*]",
        theirs=ABSENT,
        why="sent with every answer of a session, also of transports that need no CORS",
    ),
    Difference(field="vary", ours="Origin", theirs=ABSENT, why="goes with the header before"),
    Difference(
        step="?? OPTIONS *",
        field="allow",
        theirs=ABSENT,
        why="RFC 9110 section 9.3.7: an answer to OPTIONS names the methods",
    ),
    Difference(
        case="requests_that_are_no_handshake",
        field="cache-control",
        ours="no-store",
        theirs=ABSENT,
        why="an error is not to be kept",
    ),
    *(
        Difference(
            case=case,
            field=field,
            ours=ours,
            theirs=ABSENT,
            why="the greeting never changes",
        )
        for case in ("greeting", "http_1_0")
        for field, ours in (("cache-control", "max-age=31536000, public"), ("expires", "there"))
    ),
    Difference(
        field="access-control-max-age",
        ours="31536000",
        theirs=ABSENT,
        why="what is kept for a year is kept for other origins too",
    ),
    Difference(
        case="iframe_page_is_not_sent_again",
        field="etag",
        ours="there",
        theirs=ABSENT,
        why="RFC 9110 section 15.4.5: a 304 names the version that it is about",
    ),
    # Choices that the protocol leaves to the server.
    Difference(
        case="heartbeats_of_a_websocket",
        field="heartbeat",
        ours="h",
        theirs="None",
        why="we send h and a ping, as the protocol says; sockjs-node sends only the ping",
    ),
    Difference(
        case="a_broken_connection_ends_the_session",
        field="after a broken *",
        ours="*c[[]1002,*",
        theirs="*o*",
        why="the protocol allows both: the session says why it ended, or is forgotten",
    ),
    Difference(
        case="verbs_to_a_closed_session",
        field="status",
        ours="404",
        theirs="204",
        why="what can't arrive any more is refused, not swallowed",
    ),
    Difference(
        field="a*low*",
        ours="GET, HEAD, OPTIONS",
        theirs="GET, OPTIONS",
        why="HEAD works where GET does",
    ),
    Difference(
        case="methods_that_a_url_does_not_have",
        field="allow",
        ours="GET, OPTIONS",
        theirs="GET",
        why="our eventsource answers preflights too",
    ),
    Difference(
        case="broken_json_ends_a_websocket",
        field="close",
        ours="(1002, *",
        theirs="(3000, *",
        why="what is broken is the framing: RFC 6455 section 7.4.1 has a code for that",
    ),
    Difference(
        case="a_close_ends_a_websocket",
        field="close",
        ours="(3000, 'Go away!')",
        theirs="(1000, 'Normal closure')",
        why="the WebSocket's close frame says the same as SockJS's",
    ),
    # Characters.
    Difference(
        case="every_character_comes_back",
        field="body",
        why="we escape more than a server must: all that sockjs-client escapes",
    ),
    Difference(
        case="htmlfile",
        field="a script's end in a message",
        ours="*u003c*",
        why="a message must not end the script that carries it",
    ),
    Difference(
        case="half_a_pair_of_surrogates",
        field="*",
        why="texts here are Unicode, which half a pair isn't (RFC 8259 section 8.2): it is broken "
        "JSON. The protocol excepts servers that aren't UTF-16 inside",
    ),
    Difference(
        case="bytes_that_are_no_utf_8",
        field="*",
        why="refused as broken JSON; sockjs-node puts U+FFFD in their place",
    ),
)
