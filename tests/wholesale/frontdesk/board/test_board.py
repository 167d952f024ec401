"""The board over real sockets: its documents, its stream, and the right to see them."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import time
from collections.abc import AsyncIterator
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import pytest
from authorities import certify
from core_cluster import until
from house import DUBLIN, FABRIC, JSON, SETTINGS, House, open_house
from metric_values import value
from pictures import BOX, ROUTER
from signing import AUDIENCE, ISSUER, keys_file, token
from tornado.httpclient import AsyncHTTPClient, HTTPRequest, HTTPResponse

from newsfabric.amqp import Message
from newsfabric.errors import ConfigError
from newsfabric.http.fetching import fetch
from newsfabric.http.pace import Rate
from newsfabric.messages import reports
from newsfabric.messages.reports import Report, encode_report
from newsfabric.settings import Fabric, ServerFiles
from newsfabric.topics import TopicTable
from wholesale.frontdesk.api import counters
from wholesale.frontdesk.api.access import ApiKey
from wholesale.frontdesk.board import board as board_module
from wholesale.frontdesk.board import board_handlers
from wholesale.frontdesk.board.board_access import BoardAccess, BoardSettings, read_board_keys
from wholesale.frontdesk.presence.presence import login_of
from wholesale.frontdesk.service import FrontdeskSettings


@pytest.fixture
async def house(topics: TopicTable) -> AsyncIterator[House]:
    async with open_house(topics) as opened:
        yield opened


def report_message(report: Report, by: str | None = None) -> Message:
    return encode_report(report, user_id=by or login_of(report))


def board_of(response: HTTPResponse) -> dict[str, Any]:
    assert response.code == 200, response.body
    assert response.headers["Content-Type"] == JSON
    assert "no-store" in response.headers["Cache-Control"]
    assert "Access-Control-Allow-Origin" not in response.headers
    found: dict[str, Any] = json.loads(response.body)
    return found


async def names(house: House) -> set[str]:
    """Return the processes of its own region that the board shows."""
    house.service._board.refresh()
    region = board_of(await house.fetch("/board.json"))["regions"][0]
    return {one["name"] for one in (*region["services"], *region["boxes"])}


# --- the board's content


async def test_the_board_shows_who_reports(house: House):
    house.report()
    house.core.publish("upstream", report_message(ROUTER))
    async with asyncio.timeout(60):
        while await names(house) < {"oregon-frontdesk-1", "oregon-retail-1", "oregon-router-1"}:
            pass
    found = board_of(await house.fetch("/board.json"))
    assert found["frontdesk"] == "oregon-frontdesk-1"
    assert [region["name"] for region in found["regions"]] == ["oregon", "dublin"]
    assert found["regions"][1]["frontdesk_url"] == DUBLIN
    own = board_of(await house.fetch("/board.json?own=1"))
    assert [region["name"] for region in own["regions"]] == ["oregon"]


async def test_reports_in_anothers_name_are_dropped_and_counted(house: House):
    before = value(counters.SEEN_FORGED)
    for forged in (
        report_message(dataclasses.replace(BOX, name="oregon-retail-2"), by="box.oregon-retail-1"),
        # A box that claims to be a router, and a report without a user id.
        report_message(
            dataclasses.replace(ROUTER, name="oregon-router-2"), by="box.oregon-retail-1"
        ),
        encode_report(BOX),
    ):
        house.core.publish("upstream", forged)
    await until(lambda: value(counters.SEEN_FORGED) == before + 3)
    assert await names(house) <= {"oregon-frontdesk-1"}


async def test_what_is_no_report_is_counted(house: House):
    before = value(counters.SEEN_BAD)
    house.core.publish("upstream", Message(reports.report_key("oregon", "x"), b"not a report"))
    await until(lambda: value(counters.SEEN_BAD) == before + 1)


async def test_it_answers_without_core_client_and_store(house: House):
    async def broken(*_: Any, **__: Any) -> None:
        raise AssertionError("the board needs no store")

    for method in ("history", "check", "latest"):
        setattr(house.store, method, broken)
    house.service._board._links_up = lambda: (False, False)
    house.service._board.refresh()
    region = board_of(await house.fetch("/board.json"))["regions"][0]
    assert region["state"] == "troubled"
    assert region["why"][0] == "oregon-frontdesk-1 reaches no node of oregon/core: it hears nobody"


async def test_plots_have_every_region(house: House):
    house.service._board._next_point = 0.0
    house.service._board.refresh()
    found = board_of(await house.fetch("/board/plots.json"))
    assert found["every_ms"] == 5000
    assert set(found["regions"]) == {"oregon", "dublin"}
    assert found["regions"]["oregon"]["series"]["readers"] == [0]


async def test_the_page_may_load_nothing_from_elsewhere(house: House):
    response = await house.fetch("/board")
    assert response.code == 200
    assert response.headers["Content-Type"].startswith("text/html")
    assert "default-src 'self'" in response.headers["Content-Security-Policy"]
    assert "frame-ancestors 'none'" in response.headers["Content-Security-Policy"]
    assert (await house.fetch("/board", method="HEAD")).code == 200


class BoardUpdates:
    """The updates of ``/board/stream``, in the order of arrival."""

    def __init__(self, url: str, **headers: str) -> None:
        self.updates: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._text = b""
        request = HTTPRequest(url, headers=headers, streaming_callback=self._take)
        request.request_timeout = 30
        self.task = asyncio.create_task(fetch(AsyncHTTPClient(), request))

    def _take(self, chunk: bytes) -> None:
        self._text += chunk
        *whole, self._text = self._text.split(b"\n\n")
        for block in whole:
            lines = dict(line.split(b": ", 1) for line in block.split(b"\n"))
            assert lines[b"event"] == b"update"
            found = json.loads(lines[b"data"])
            found["id"] = int(lines[b"id"])
            self.updates.put_nowait(found)

    async def next(self) -> dict[str, Any]:
        async with asyncio.timeout(60):
            return await self.updates.get()


async def test_the_stream_begins_with_everything_and_goes_on_with_what_is_new(house: House):
    picture = house.service._board.picture
    picture.events.add("oregon", "node_away", "a", "a is away", time.monotonic())
    stream = BoardUpdates(f"{house.url}/board/stream")
    first = await stream.next()
    assert [event["who"] for event in first["events"]] == ["a"]
    assert first["id"] == first["events"][-1]["seq"]
    assert first["regions"][0]["name"] == "oregon"
    picture.events.add("oregon", "node_back", "a", "a is back", time.monotonic())
    while not (events := (await stream.next())["events"]):
        pass
    assert [event["kind"] for event in events] == ["node_back"]
    stream.task.cancel()


async def test_only_so_many_watch_and_who_goes_makes_room(
    house: House, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(board_module, "MAX_STREAMS", 1)
    watcher = asyncio.Event()
    assert house.service._board.watch(watcher)
    assert (await house.fetch("/board/stream")).code == 503
    house.service._board.unwatch(watcher)
    stream = BoardUpdates(f"{house.url}/board/stream")
    await stream.next()
    stream.task.cancel()


# --- the right to see it


@contextlib.asynccontextmanager
async def guarded(topics: TopicTable, tmp_path: Path, **board: Any) -> AsyncIterator[House]:
    """Open a house that asks for a login, although tests reach it on loopback only."""
    settings = BoardSettings(
        token_keys=keys_file(tmp_path), token_audience=AUDIENCE, token_issuer=ISSUER, **board
    )
    async with open_house(topics, dataclasses.replace(SETTINGS, board=settings)) as house:
        house.service._board_access._loopback = False
        yield house


def bearer(**claims: Any) -> dict[str, str]:
    return {"Authorization": f"Bearer {token(**claims)}"}


PATHS = ("/board.json", "/board.json?own=1", "/board/stream", "/board/plots.json")


@pytest.mark.parametrize("path", PATHS)
async def test_without_a_login_there_is_nothing_to_see(
    topics: TopicTable, tmp_path: Path, path: str
):
    async with guarded(topics, tmp_path) as house:
        response = await house.fetch(path)
        assert response.code == 401
        assert response.headers["WWW-Authenticate"] == "Bearer"
        assert "regions" not in response.body.decode()
        # The page itself is open: operators log in there.
        assert (await house.fetch("/board")).code == 200


async def test_an_operators_token_opens_it(topics: TopicTable, tmp_path: Path):
    async with guarded(topics, tmp_path) as house:
        response = await house.fetch("/board.json", headers=bearer(operator=True))
        assert board_of(response)["region"] == "oregon"


@pytest.mark.parametrize("claim", [{}, {"operator": False}, {"operator": "true"}, {"operator": 1}])
async def test_a_readers_token_doesnt(topics: TopicTable, tmp_path: Path, claim: dict[str, Any]):
    async with guarded(topics, tmp_path) as house:
        response = await house.fetch("/board.json", headers=bearer(**claim))
        assert response.code == 403
        assert json.loads(response.body)["error"]["reason"] == "not_an_operator"


async def test_an_operators_token_is_good_for_a_day_at_most(topics: TopicTable, tmp_path: Path):
    async with guarded(topics, tmp_path) as house:
        now = time.time()
        old = bearer(operator=True, iat=now - 86_500, exp=now + 3600)
        assert (await house.fetch("/board.json", headers=old)).code == 401


async def test_a_login_sets_a_cookie_that_scripts_cant_read(topics: TopicTable, tmp_path: Path):
    async with guarded(topics, tmp_path) as house:
        body = f"token={token(operator=True)}"
        response = await house.fetch("/board/login", method="POST", body=body)
        assert (response.code, response.body) == (204, b"")
        cookie = response.headers["Set-Cookie"]
        assert cookie.startswith("newsfabric_board=")
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        assert "Secure" not in cookie
        sent = {"Cookie": cookie.split(";", 1)[0]}
        assert board_of(await house.fetch("/board.json", headers=sent))["region"] == "oregon"


async def test_an_answer_says_who_is_logged_in(topics: TopicTable, tmp_path: Path):
    async with guarded(topics, tmp_path) as house:
        known = await house.fetch("/board.json", headers=bearer(user="ada", operator=True))
        stranger = await house.fetch("/board.json")
    assert known.headers["Newsfabric-Operator"] == "ada"
    assert "Newsfabric-Operator" not in stranger.headers


async def test_a_logout_has_the_browser_forget_the_cookie(topics: TopicTable, tmp_path: Path):
    async with guarded(topics, tmp_path) as house:
        response = await house.fetch("/board/logout", method="POST", body="")
    assert response.code == 204
    name, *attributes = response.headers["Set-Cookie"].split("; ")
    assert name == 'newsfabric_board=""'
    assert {"Path=/", "HttpOnly", "SameSite=Strict"} <= set(attributes)
    (expires,) = [value for value in attributes if value.startswith("expires=")]
    assert parsedate_to_datetime(expires.removeprefix("expires=")).timestamp() < time.time()


async def test_over_https_the_cookie_stays_there(topics: TopicTable, tmp_path: Path):
    async with guarded(topics, tmp_path) as house:
        headers = {"Origin": f"https://127.0.0.1:{house.service.port}"}
        body = f"token={token(operator=True)}"
        response = await house.fetch("/board/login", method="POST", body=body, headers=headers)
        assert "; Secure" in response.headers["Set-Cookie"]


@pytest.mark.parametrize("body", ["", "token=", "token=x.y.z", f"token={'x' * 9000}"])
async def test_a_bad_token_logs_nobody_in(topics: TopicTable, tmp_path: Path, body: str):
    async with guarded(topics, tmp_path) as house:
        response = await house.fetch("/board/login", method="POST", body=body)
        assert response.code == 403
        assert "Set-Cookie" not in response.headers


@pytest.mark.parametrize("path", ["/board/login", "/board/logout"])
async def test_another_sites_page_logs_nobody_in_or_out(
    topics: TopicTable, tmp_path: Path, path: str
):
    async with guarded(topics, tmp_path) as house:
        body = f"token={token(operator=True)}"
        headers = {"Origin": "https://evil.example"}
        response = await house.fetch(path, method="POST", body=body, headers=headers)
        assert response.code == 403
        assert "Set-Cookie" not in response.headers


async def test_who_asks_too_often_has_to_wait(
    topics: TopicTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(board_handlers, "BOARD_RATE", Rate(burst=2, per_second=0.001))
    async with guarded(topics, tmp_path) as house:
        paths = ("/board.json", "/board/stream", "/board/plots.json")
        assert [(await house.fetch(path)).code for path in paths] == [401, 401, 429]
        response = await house.fetch("/board/login", method="POST", body="token=x")
        assert (response.code, response.headers["Retry-After"]) == (429, "1000")


async def test_a_stream_ends_with_its_login(topics: TopicTable, tmp_path: Path):
    async with guarded(topics, tmp_path) as house:
        house.service._board_access._rules = dataclasses.replace(
            house.service._board_access._rules, leeway=0.0
        )
        headers = bearer(operator=True, exp=time.time() + 2.0)
        stream = BoardUpdates(f"{house.url}/board/stream", **headers)
        await stream.next()
        async with asyncio.timeout(60):
            response = await stream.task
        assert response.code == 200


@pytest.mark.parametrize(
    "header", ["X-Forwarded-For", "Forwarded", "Via", "X-Forwarded-Host", "X-Real-IP"]
)
async def test_what_a_proxy_on_this_machine_forwards_needs_a_login(house: House, header: str):
    response = await house.fetch("/board.json", headers={header: "10.0.0.1"})
    assert response.code == 403
    assert json.loads(response.body)["error"]["reason"] == "no_logins"


@pytest.mark.parametrize(
    "headers", [{"Host": "board.evil.example"}, {"Origin": "https://evil.example"}]
)
async def test_on_loopback_a_web_page_sees_nothing(house: House, headers: dict[str, str]):
    assert (await house.fetch("/board.json", headers=headers)).code == 403


async def test_off_loopback_nobody_sees_it_without_keys():
    access = BoardAccess(BoardSettings(), loopback=False, clock=time.time)
    found = await access.login("anything")
    assert (getattr(found, "status", None), getattr(found, "reason", None)) == (403, "no_logins")


def test_rules_without_keys_are_a_mistake():
    with pytest.raises(ConfigError, match="need --token-keys"):
        BoardAccess(BoardSettings(token_audience="x"), loopback=True, clock=time.time)


# --- other regions


def _with_dublin_at(url: str) -> Fabric:
    oregon, dublin = FABRIC.regions
    return Fabric((oregon, dataclasses.replace(dublin, frontdesk_url=url)))


KEY = "correct-horse-battery-staple"
FORMER = "another-long-shared-secret"


def keys(folder: Path, *lines: str) -> BoardSettings:
    """Return the settings of a frontdesk that is known by a key of these ``lines``."""
    file = folder / "board-keys"
    file.write_text("\n".join(("# of all frontdesks", *lines)) + "\n")
    return BoardSettings(key_file=file)


def knowing(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def exposed(board: BoardSettings, name: str = "oregon-frontdesk-1") -> FrontdeskSettings:
    """Return the settings of a frontdesk that other machines reach, without logins of operators."""
    return FrontdeskSettings(
        name=name,
        region=name.split("-")[0],
        host="0.0.0.0",
        admin_port=0,
        api_keys=(ApiKey("0123456789abcdef"),),
        board=dataclasses.replace(board, token_over_http=True),
    )


@pytest.mark.parametrize("key", [KEY, FORMER])
async def test_with_a_key_of_its_file_another_frontdesk_sees_its_region_and_nothing_else(
    topics: TopicTable, tmp_path: Path, key: str
):
    async with open_house(topics, exposed(keys(tmp_path, KEY, FORMER))) as house:
        found = await house.fetch("/board.json?own=1", headers=knowing(key))
        assert [region["name"] for region in board_of(found)["regions"]] == ["oregon"]
        assert "Newsfabric-Operator" not in found.headers
        for path in (
            "/board.json",
            "/board.json?own=0",
            "/board.json?own=1&own=0",
            "/board/stream",
            "/board/stream?own=1",
            "/board/plots.json",
            "/board/plots.json?own=1",
        ):
            response = await house.fetch(path, headers=knowing(key))
            assert (path, response.code) == (path, 403)
        login = await house.fetch("/board/login", method="POST", body=f"token={key}")
        assert (login.code, login.headers.get("Set-Cookie")) == (403, None)
        cookie = {"Cookie": f"newsfabric_board={key}"}
        assert (await house.fetch("/board.json?own=1", headers=cookie)).code == 401


@pytest.mark.parametrize(
    "headers",
    [{}, knowing(""), knowing(KEY + "x"), knowing("# of all frontdesks"), {"X-API-Key": KEY}],
)
async def test_without_one_it_is_asked_for(
    topics: TopicTable, tmp_path: Path, headers: dict[str, str]
):
    async with open_house(topics, exposed(keys(tmp_path, KEY))) as house:
        response = await house.fetch("/board.json?own=1", headers=headers)
        assert (response.code, response.headers["WWW-Authenticate"]) == (401, "Bearer")


async def test_where_operators_log_in_too_each_is_shown_what_is_theirs(
    topics: TopicTable, tmp_path: Path
):
    async with guarded(topics, tmp_path, key_file=keys(tmp_path, KEY).key_file) as house:
        for headers, codes in (
            (knowing(KEY), [401, 200]),
            (knowing(FORMER), [401, 401]),
            (bearer(operator=True), [200, 200]),
            (bearer(operator=False), [403, 403]),
        ):
            paths = ("/board.json", "/board.json?own=1")
            assert [(await house.fetch(path, headers=headers)).code for path in paths] == codes


async def test_keys_are_read_anew_and_a_file_that_is_gone_opens_nothing(
    topics: TopicTable, tmp_path: Path
):
    board = keys(tmp_path, FORMER)
    assert board.key_file is not None
    async with open_house(topics, exposed(board)) as house:
        for change, code in (
            (lambda: keys(tmp_path, KEY, FORMER), 200),
            (lambda: keys(tmp_path, FORMER), 401),
            (board.key_file.unlink, 401),
        ):
            change()
            response = await house.fetch("/board.json?own=1", headers=knowing(KEY))
            assert response.code == code


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("short", "line 2: a key needs at least 16 characters"),
        (f"cms {KEY}", "a line is a key, of ASCII characters"),
        ("schlüssel-zum-schlüsselkasten", "a line is a key, of ASCII characters"),
        ("", "needs a key of at least 16 characters"),
    ],
)
async def test_a_bad_file_of_keys_is_one_clear_line(tmp_path: Path, line: str, error: str):
    with pytest.raises(ConfigError, match=f"^--board-key-file: .*{error}$") as caught:
        await read_board_keys(keys(tmp_path, line).key_file)
    assert KEY not in str(caught.value)


@pytest.mark.parametrize("known", [(KEY,), (FORMER,), (FORMER, KEY)])
async def test_another_regions_frontdesk_is_shown_the_key_that_it_knows(
    topics: TopicTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: tuple[str, ...]
):
    theirs = tmp_path / "dublin"
    theirs.mkdir()
    there = exposed(keys(theirs, *known), "dublin-frontdesk-1")
    async with open_house(topics, there) as dublin:
        monkeypatch.setattr("house.FABRIC", _with_dublin_at(dublin.url))
        ours = dataclasses.replace(SETTINGS, board=keys(tmp_path, KEY, FORMER))
        async with open_house(topics, ours) as house:
            async with asyncio.timeout(60):
                while not (found := await _dublin(house))["services"]:
                    pass
            assert [one["name"] for one in found["services"]] == ["dublin-frontdesk-1"]
            assert found["age_ms"] < 5000


async def test_over_https_it_is_known_by_the_fabrics_own_authority(
    topics: TopicTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    files = certify(tmp_path, "fabric")
    board = keys(tmp_path, KEY)
    shown = ServerFiles(files.certificate, files.key)
    there = dataclasses.replace(exposed(board, "dublin-frontdesk-1"), tls=shown)
    async with open_house(topics, there) as dublin:
        url = f"https://127.0.0.1:{dublin.service.port}"
        monkeypatch.setattr("house.FABRIC", _with_dublin_at(url))
        ours = dataclasses.replace(SETTINGS, board=board, authorities=files.authority)
        async with open_house(topics, ours) as house:
            async with asyncio.timeout(60):
                while not (found := await _dublin(house))["services"]:
                    pass
            assert [one["name"] for one in found["services"]] == ["dublin-frontdesk-1"]


async def test_a_region_whose_frontdesk_knows_no_such_key_is_away_and_says_so(
    topics: TopicTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    theirs = tmp_path / "dublin"
    theirs.mkdir()
    there = exposed(keys(theirs, KEY), "dublin-frontdesk-1")
    async with open_house(topics, there) as dublin:
        monkeypatch.setattr("house.FABRIC", _with_dublin_at(dublin.url))
        ours = dataclasses.replace(SETTINGS, board=keys(tmp_path, FORMER))
        async with open_house(topics, ours) as house:
            async with asyncio.timeout(60):
                while "HTTP 401" not in str((found := await _dublin(house))["why"]):
                    pass
            assert found["state"] == "away"


async def test_a_damaged_key_file_is_named_on_the_board(topics: TopicTable, tmp_path: Path):
    board = keys(tmp_path, KEY)
    async with open_house(topics, dataclasses.replace(SETTINGS, board=board)) as house:
        keys(tmp_path, "short")
        async with asyncio.timeout(60):
            while "--board-key-file" not in str((found := await _dublin(house))["why"]):
                pass
    assert "line 2: a key needs at least 16 characters" in found["why"][0]


async def test_a_key_is_not_shown_over_plain_http_to_other_machines_unless_one_says_so(
    topics: TopicTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("house.FABRIC", _with_dublin_at("http://dublin.example"))
    board = keys(tmp_path, KEY)
    with pytest.raises(ConfigError, match=r"http://dublin\.example: a token is sent over https"):
        async with open_house(topics, dataclasses.replace(SETTINGS, board=board)):
            pass
    meant = dataclasses.replace(board, token_over_http=True)
    async with open_house(topics, dataclasses.replace(SETTINGS, board=meant)) as house:
        assert (await house.fetch("/board.json")).code == 200


async def _dublin(house: House) -> dict[str, Any]:
    house.service._board.refresh()
    found: dict[str, Any] = board_of(await house.fetch("/board.json"))["regions"][1]
    return found
