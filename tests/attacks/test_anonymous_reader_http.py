"""What somebody without a name wants of a gateway's or a frontdesk's HTTP port."""

from __future__ import annotations

import logging

import pytest
from gateways import ENGINES, opened_box

from newsfabric.pace import Rate

FEW = Rate(burst=3, per_second=0.01)


@pytest.mark.parametrize("engine", ENGINES)
async def test_a_reader_keeps_the_store_busy_with_histories(engine: str) -> None:
    async with opened_box(engine, history_rate=FEW) as box:
        path = "/history?topic=news.breaking"
        answers = [await box.request("GET", path, Origin="https://a.example") for _ in range(5)]
        assert [answer.status for answer in answers] == [200, 200, 200, 429, 429]
        refused = answers[-1]
        assert refused.json()["code"] == 111
        assert 1 <= int(refused.headers["retry-after"]) <= 100
        assert refused.headers["access-control-allow-origin"] == "https://a.example"


@pytest.mark.parametrize("engine", ENGINES)
async def test_an_origin_that_is_none_raises_an_error_in_a_gateway(
    engine: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened_box(engine, origins=("https://news.example",), sockjs_legacy=True) as box:
        for origin in ("http://[", "http://a]", "http://[::1", "://", "\x80", "null", ""):
            for path in (
                "/sockjs/info",
                "/sockjs/0/s/xhr",
                "/history?topic=x",
                "/sockjs/0/s/jsonp",
            ):
                method = "POST" if path.endswith("xhr") else "GET"
                answer = await box.request(method, path, Origin=origin)
                assert answer.status == 403, (origin, path)
    assert [r for r in caplog.records if r.levelno >= logging.ERROR] == []


@pytest.mark.parametrize("engine", ENGINES)
async def test_a_reader_reads_what_only_operators_may(engine: str) -> None:
    async with opened_box(engine) as box:
        for path in ("/metrics", "/load", "/engine", "/trace/x", "/drain", "/take-over"):
            assert (await box.request("GET", path)).status == 404
            assert (await box.request("POST", path)).status == 404
        assert (await box.request("GET", "/healthz/live")).status == 200
