"""SockJS cases: static URLs, sessions, the transports over HTTP, and the end of a session."""

from __future__ import annotations

import asyncio
import contextlib
import json

from dialogue import Dialogue
from sockjs_suite import (
    FORM,
    GO_AWAY,
    PRELUDE,
    SCRIPT_END,
    SECOND,
    cached,
    case,
    ends,
    is_type,
    not_cached,
    poll,
    post_verbs,
    shared_with,
)

# Static URLs.


@case()
async def greeting(d: Dialogue) -> None:
    for path in ("", "/"):
        answer = await d.get(path)
        assert (answer.status, answer.body) == (200, b"Welcome to SockJS!\n")
        is_type(answer, "text/plain;charset=utf-8")


@case()
async def other_urls_are_not_there(d: Dialogue) -> None:
    for path in ("/a", "/a.html", "//", "///", "/a/a", "/a/a/", "/a/"):
        assert (await d.get(path)).status == 404


@case()
async def iframe_page(d: Dialogue) -> None:
    for path in (
        "/iframe.html", "/iframe-a.html", "/iframe-.html", "/iframe-0.1.2.html",
        "/iframe-0.1.2abc-dirty.2144.html", "/iframe-a.html?t=1234",
    ):  # fmt: skip
        answer = await d.get(path)
        assert answer.status == 200
        is_type(answer, "text/html;charset=utf-8")
        cached(answer)
        assert answer.headers["etag"]
        assert b'<script src="/sockjs.min.js"></script>' in answer.body


@case()
async def iframe_page_is_not_sent_again(d: Dialogue) -> None:
    first = await d.get("/iframe.html")
    again = await d.get("/iframe.html", If_None_Match=first.headers["etag"])
    assert (again.status, again.body) == (304, b"")
    assert "content-type" not in again.headers


@case()
async def iframe_pages_of_other_names_are_not_there(d: Dialogue) -> None:
    for path in (
        "/iframe.htm", "/iframe", "/IFRAME.HTML", "/IFRAME", "/iframe.HTML", "/iframe.xml",
        "/iframe-/.html",
    ):  # fmt: skip
        assert (await d.get(path)).status == 404


@case()
async def info(d: Dialogue) -> None:
    entropies = set()
    for headers in ({"Origin": "http://a.example"}, {}):
        async with d.stream("GET", "/info", Connection="close", **headers) as stream:
            document = json.loads(await stream.rest())
        not_cached(stream.head)
        is_type(stream.head, "application/json;charset=utf-8")
        entropies.add(document.pop("entropy"))
        assert document == {"websocket": True, "origins": ["*:*"], "cookie_needed": False}
        if headers:
            shared_with(stream.head, "http://a.example")
        else:
            assert stream.head.headers["access-control-allow-origin"] == "*"
    assert len(entropies) == 2
    assert all(0 <= entropy < 2**32 for entropy in entropies)


@case()
async def preflights(d: Dialogue) -> None:
    for path, method in {
        "/info": "GET", "/a/b/xhr": "POST", "/a/b/xhr_send": "POST", "/a/b/xhr_streaming": "POST",
    }.items():  # fmt: skip
        for origin in ("http://a.example", "null"):
            answer = await d.request(
                "OPTIONS", path, Origin=origin, Access_Control_Request_Method=method
            )
            assert answer.status in (200, 204)
            assert answer.body == b""
            cached(answer)
            shared_with(answer, origin)
            assert int(answer.headers["access-control-max-age"]) > 1_000_000
            methods = answer.headers["access-control-allow-methods"].replace(" ", "").split(",")
            assert {"OPTIONS", method} <= set(methods)


@case()
async def preflights_that_ask_for_headers(d: Dialogue) -> None:
    for asked in ("a, b, c", "", None):
        headers = {} if asked is None else {"Access_Control_Request_Headers": asked}
        answer = await d.request("OPTIONS", "/a/b/xhr", Origin="http://a.example", **headers)
        shared_with(answer, "http://a.example")
        assert answer.headers.get("access-control-allow-headers", "") == (asked or "")


@case()
async def methods_that_a_url_does_not_have(d: Dialogue) -> None:
    for method, path in (
        ("GET", "/a/b/xhr"), ("GET", "/a/b/xhr_send"), ("POST", "/info"), ("PUT", "/a/b/xhr"),
        ("POST", "/a/b/eventsource"),
    ):  # fmt: skip
        assert (await d.request(method, path)).status == 405


# Sessions.


@case()
async def any_server_and_session(d: Dialogue) -> None:
    unique = d.session.rpartition("/")[2]
    for server, session in (("a", "a"), ("_", "_"), ("1", ""), ("a-b_c%20", "i-j_k%20")):
        async with d.stream("POST", f"/{server}/{session}{unique}{server}/xhr") as stream:
            assert stream.head.status == 200
            assert await stream.until(b"\n") == b"o\n"


@case()
async def urls_with_dots_and_without_parts(d: Dialogue) -> None:
    for path in ("//", "/a./a", "/a/a.", "/./.", "/", "///", "/a/b/c"):
        for method in ("GET", "POST"):
            assert (await d.request(method, f"{path}/xhr")).status == 404


@case()
async def the_server_part_means_nothing(d: Dialogue) -> None:
    assert await poll(d) == b"o\n"
    await post_verbs(d, b'["a"]')
    d.session = d.session.replace("/000/", "/999/")
    assert await poll(d) == b'a["a"]\n'


@case()
async def sending_without_a_session(d: Dialogue) -> None:
    assert (await d.post(f"{d.session}/xhr_send", b'["a"]')).status == 404


@case()
async def one_receiver_at_a_time(d: Dialogue) -> None:
    assert await poll(d) == b"o\n"
    async with d.stream("POST", f"{d.session}/xhr_streaming") as first:
        assert await first.until(b"\n") == PRELUDE
        for transport, end in {"xhr": b"", "xhr_streaming": PRELUDE}.items():
            answer = await d.post(f"{d.session}/{transport}")
            assert (answer.status, answer.body) == (200, end + SECOND)
        await post_verbs(d, b'["a"]')
        assert await first.until(b"\n") == b'a["a"]\n'


@case("hasty")
async def a_session_is_forgotten_when_nobody_polls(d: Dialogue) -> None:
    assert await poll(d) == b"o\n"
    for _ in range(100):
        await asyncio.sleep(0.1)  # the session must time out without a poll
        probe = Dialogue(d.peer, d.endpoint)
        if (await probe.post(f"{d.session}/xhr_send", b"[]")).status == 404:
            break
    assert (await d.post(f"{d.session}/xhr_send", b'["a"]')).status == 404
    assert await poll(d) == b"o\n"


# xhr.


@case()
async def xhr(d: Dialogue) -> None:
    answer = await d.post(f"{d.session}/xhr", Origin="http://a.example")
    assert (answer.status, answer.body) == (200, b"o\n")
    is_type(answer, "application/javascript;charset=utf-8")
    shared_with(answer, "http://a.example")
    not_cached(answer)
    sent = await d.post(f"{d.session}/xhr_send", b'["x"]', Origin="http://a.example")
    assert (sent.status, sent.body) == (204, b"")
    is_type(sent, "text/plain;charset=utf-8")
    shared_with(sent, "http://a.example")
    not_cached(sent)
    assert await poll(d, Origin="null") == b'a["x"]\n'


@case()
async def xhr_waits_for_a_message(d: Dialogue) -> None:
    assert await poll(d) == b"o\n"
    waiting = asyncio.create_task(poll(d))
    sender = Dialogue(d.peer, d.endpoint)
    await sender.post(f"{d.session}/xhr_send", b'["a"]')
    assert await waiting == b'a["a"]\n'


@case()
async def xhr_send_refuses_what_it_can_not_read(d: Dialogue) -> None:
    assert await poll(d) == b"o\n"
    for body, why in (
        (b'["x', b"Broken JSON encoding."), (b"x", b"Broken JSON encoding."),
        (b"", b"Payload expected."), (b'"x"', b"Payload expected."), (b"{}", b"Payload expected."),
        (b"7", b"Payload expected."), (b"null", b"Payload expected."),
    ):  # fmt: skip
        answer = await d.post(f"{d.session}/xhr_send", body)
        assert answer.status == 500
        assert why in answer.body
    await post_verbs(d, b'["a"]')
    assert await poll(d) == b'a["a"]\n'


@case()
async def xhr_send_takes_many_content_types(d: Dialogue) -> None:
    types = ("text/plain", "T", "application/json", "application/xml", "",
             "application/json; charset=utf-8", "text/xml; charset=utf-8", "text/xml")  # fmt: skip
    assert await poll(d) == b"o\n"
    for content_type in types:
        await post_verbs(d, b'["a"]', Content_Type=content_type)
    assert await poll(d) == b"a[" + b",".join([b'"a"'] * len(types)) + b"]\n"


@case()
async def frames_without_messages(d: Dialogue) -> None:
    assert await poll(d) == b"o\n"
    await post_verbs(d, b"[]")
    await post_verbs(d, b' [ "a" , "b" ] ')
    assert await poll(d) == b'a["a","b"]\n'


@case("hasty")
async def heartbeats(d: Dialogue) -> None:
    assert await poll(d) == b"o\n"
    assert await poll(d) == b"h\n"
    async with d.stream("POST", f"{d.session}/xhr_streaming") as stream:
        assert [await stream.until(b"\n") for _ in range(3)] == [PRELUDE, b"h\n", b"h\n"]


@case("hasty")
async def heartbeats_of_a_websocket(d: Dialogue) -> None:
    async with d.websocket(f"{d.session}/websocket") as ws:
        assert await ws.hear() == "o"
        # A server without SockJS's frame still sends WebSocket pings.
        heard = None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.5):
                heard = await ws.connection.recv()
        assert heard in ("h", None)
        d.note("heartbeat", heard)


# The streaming transports.


@case()
async def xhr_streaming(d: Dialogue) -> None:
    async with d.stream("POST", f"{d.session}/xhr_streaming", Origin="http://a.example") as stream:
        is_type(stream.head, "application/javascript;charset=utf-8")
        shared_with(stream.head, "http://a.example")
        not_cached(stream.head)
        assert await stream.until(b"\n") == PRELUDE
        assert await stream.until(b"\n") == b"o\n"
        for text in (b'["x"]', b'["y"]'):
            await post_verbs(d, text)
            assert await stream.until(b"\n") == b"a" + text + b"\n"


@case()
async def xhr_streaming_ends_after_its_limit(d: Dialogue) -> None:
    message = b'["' + b"x" * 128 + b'"]'
    async with d.stream("POST", f"{d.session}/xhr_streaming") as stream:
        assert await stream.until(b"\n") == PRELUDE
        assert await stream.until(b"\n") == b"o\n"
        for _ in range(31):
            await post_verbs(d, message)
            assert await stream.until(b"\n") == b"a" + message + b"\n"
        await ends(stream)
    await post_verbs(d, b'["after"]')
    assert await poll(d) == b'a["after"]\n'


@case()
async def eventsource(d: Dialogue) -> None:
    async with d.stream("GET", f"{d.session}/eventsource") as stream:
        assert stream.head.status == 200
        assert stream.head.headers["content-type"] == "text/event-stream"
        not_cached(stream.head)
        assert await stream.until(b"\r\n") == b"\r\n"
        assert await stream.until(b"\r\n\r\n") == b"data: o\r\n\r\n"
        await post_verbs(d, b'["x"]')
        assert await stream.until(b"\r\n\r\n") == b'data: a["x"]\r\n\r\n'
        await post_verbs(d, rb'["  \u0000\n\r "]')
        assert await stream.until(b"\r\n\r\n") == b'data: a["  \\u0000\\n\\r "]\r\n\r\n'


@case()
async def eventsource_ends_after_its_limit(d: Dialogue) -> None:
    message = b'["' + b"x" * 4096 + b'"]'
    async with d.stream("GET", f"{d.session}/eventsource") as stream:
        assert await stream.until(b"o\r\n\r\n") == b"\r\ndata: o\r\n\r\n"
        await post_verbs(d, message)
        assert await stream.until(b"\r\n\r\n") == b"data: a" + message + b"\r\n\r\n"
        await ends(stream)


@case()
async def htmlfile(d: Dialogue) -> None:
    async with d.stream("GET", f"{d.session}/htmlfile?c=%63all.back") as stream:
        assert stream.head.status == 200
        is_type(stream.head, "text/html;charset=utf-8")
        not_cached(stream.head)
        page = await stream.until(b"\r\n\r\n")
        assert len(page) > 1024
        assert b"var c = parent.call.back;" in page
        d.note("page", page.strip())
        assert await stream.until(SCRIPT_END) == b'<script>\np("o");\n</script>\r\n'
        await post_verbs(d, b'["x"]')
        assert await stream.until(SCRIPT_END) == b'<script>\np("a[\\"x\\"]");\n</script>\r\n'
        await post_verbs(d, b'["</script>"]')
        d.note("a script's end in a message", await stream.until(b'");\n</script>\r\n'))


@case()
async def htmlfile_ends_after_its_limit(d: Dialogue) -> None:
    async with d.stream("GET", f"{d.session}/htmlfile?c=x") as stream:
        await stream.until(b"\r\n\r\n")
        await stream.until(SCRIPT_END)
        await post_verbs(d, b'["' + b"x" * 4096 + b'"]')
        assert b'p("a[\\"xxxx' in await stream.until(SCRIPT_END)
        await ends(stream)


@case()
async def callbacks_that_are_missing_or_evil(d: Dialogue) -> None:
    for transport in ("jsonp", "htmlfile"):
        answer = await d.get(f"{d.session}/{transport}")
        assert answer.status == 500
        assert b'"callback" parameter required' in answer.body
        for callback in ("%20", "*", "abc(", "abc%28"):
            answer = await d.get(f"{d.session}/{transport}?c={callback}")
            assert answer.status == 500
            assert b'invalid "callback" parameter' in answer.body


# jsonp.


@case()
async def jsonp(d: Dialogue) -> None:
    answer = await d.get(f"{d.session}/jsonp?c=%63allback")
    assert (answer.status, answer.body) == (200, b'/**/callback("o");\r\n')
    is_type(answer, "application/javascript;charset=utf-8")
    not_cached(answer)
    sent = await d.post(f"{d.session}/jsonp_send", b"d=%5B%22x%22%5D", Content_Type=FORM)
    assert (sent.status, sent.body) == (200, b"ok")
    is_type(sent, "text/plain;charset=utf-8")
    not_cached(sent)
    answer = await d.get(f"{d.session}/jsonp?c=%63allback")
    assert answer.body == b'/**/callback("a[\\"x\\"]");\r\n'


@case()
async def jsonp_send(d: Dialogue) -> None:
    await d.get(f"{d.session}/jsonp?c=x")
    answer = await d.post(f"{d.session}/jsonp_send", b"d=%5B%22x", Content_Type=FORM)
    assert answer.status == 500
    assert b"Broken JSON encoding." in answer.body
    for body in (b"", b"d=", b"p=p"):
        answer = await d.post(f"{d.session}/jsonp_send", body, Content_Type=FORM)
        assert answer.status == 500
        assert b"Payload expected." in answer.body
    for body, kind in (
        (b"d=%5B%5D", FORM), (b"d=%5B%22a+b%22%5D", FORM), (b'["%61bc"]', "text/plain"),
    ):  # fmt: skip
        answer = await d.post(f"{d.session}/jsonp_send", body, Content_Type=kind)
        assert (answer.status, answer.body) == (200, b"ok")
    answer = await d.get(f"{d.session}/jsonp?c=x")
    assert answer.body == b'/**/x("a[\\"a b\\",\\"%61bc\\"]");\r\n'


# The end of a session.


@case("close")
async def a_closed_session_says_so_again_and_again(d: Dialogue) -> None:
    assert await poll(d) == b"o\n"
    for _ in range(2):
        assert await poll(d) == GO_AWAY.encode() + b"\n"
    answer = await d.get(f"{d.session}/jsonp?c=x")
    assert answer.body == b'/**/x("c[3000,\\"Go away!\\"]");\r\n'


@case("close")
async def a_close_ends_streaming(d: Dialogue) -> None:
    async with d.stream("POST", f"{d.session}/xhr_streaming") as stream:
        expected = [PRELUDE, b"o\n", GO_AWAY.encode() + b"\n"]
        assert [await stream.until(b"\n") for _ in range(3)] == expected
        await ends(stream)
    answer = await d.post(f"{d.session}/xhr_streaming")
    assert answer.body == PRELUDE + GO_AWAY.encode() + b"\n"


@case("close")
async def a_close_ends_eventsource_and_htmlfile(d: Dialogue) -> None:
    async with d.stream("GET", f"{d.session}1/eventsource") as stream:
        assert await stream.rest() == f"\r\ndata: o\r\n\r\ndata: {GO_AWAY}\r\n\r\n".encode()
    async with d.stream("GET", f"{d.session}2/htmlfile?c=x") as stream:
        await stream.until(b"\r\n\r\n")
        assert (await stream.rest()).endswith(
            b'<script>\np("c[3000,\\"Go away!\\"]");\n</script>\r\n'
        )


@case("close")
async def verbs_to_a_closed_session(d: Dialogue) -> None:
    assert await poll(d) == b"o\n"
    assert await poll(d) == GO_AWAY.encode() + b"\n"
    await d.post(f"{d.session}/xhr_send", b'["a"]')


@case()
async def a_broken_connection_ends_the_session(d: Dialogue) -> None:
    for transport in ("xhr", "xhr_streaming"):
        d.session += "x"
        assert await poll(d) == b"o\n"
        async with d.begun("POST", f"{d.session}/{transport}") as writer:
            answer = await d.post(f"{d.session}/xhr")
            assert answer.body == SECOND
            writer.transport.abort()
        for _ in range(100):
            probe = Dialogue(d.peer, d.endpoint)
            answer = await probe.post(f"{d.session}/xhr")
            if answer.body != SECOND:
                break
            await asyncio.sleep(0.02)  # until the server has seen it
        assert answer.body in (b"o\n", b'c[1002,"Connection interrupted"]\n')
        d.note(f"after a broken {transport}", answer.body)
