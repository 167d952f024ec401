"""The drain of a box: its readers are notified, at a pace, and sent elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from gateways import Reader, opened_box, until

from gateway.process.settings import NativeSettings


async def test_every_reader_is_asked_to_reconnect_and_closed_with_1012(engine: str) -> None:
    async with contextlib.AsyncExitStack() as stack:
        async with opened_box(engine) as box:
            readers: list[Reader] = [
                await stack.enter_async_context(box.reader("news.breaking")) for _ in range(5)
            ]
        waits = set()
        for reader in readers:
            code, pushes = await reader.hear_close()
            assert code == 1012
            (push,) = pushes
            assert (push["type"], push["code"], push["reconnect"]) == ("disconnect", 1012, True)
            assert 0 <= push["retry_after_ms"] <= 2000
            waits.add(push["retry_after_ms"])
        # They come back at different times.
        assert len(waits) > 1


async def test_a_drain_is_paced_and_lets_nobody_in(engine: str) -> None:
    async with contextlib.AsyncExitStack() as stack:
        # Each thread of the native engine paces its own readers; with several, the pace varies.
        one = NativeSettings(threads=1)
        async with opened_box(engine, drain_seconds=0.4, native=one) as box:
            box.tick()
            await until(lambda: box.gateway.core.readiness().ready)
            readers = [await stack.enter_async_context(box.reader()) for _ in range(4)]
            closed: list[float] = []
            loop = asyncio.get_running_loop()

            async def watch(reader: Reader) -> None:
                await reader.hear_close()
                closed.append(loop.time())

            watching = [asyncio.create_task(watch(reader)) for reader in readers]

            async def look_inside() -> tuple[int, int, int]:
                await until(lambda: box.gateway.core.admission.draining)
                ready = await box.request("GET", "/healthz/ready", port=box.gateway.admin_port)
                page = await box.request("GET", "/events?topic=news.a")
                async with box.opened() as raw:
                    upgrade = await raw.upgrade()
                return ready.status, page.status, upgrade.status

            looking = asyncio.create_task(look_inside())
        assert await looking == (503, 503, 503)
        await asyncio.gather(*watching)
        assert max(closed) - min(closed) >= 0.2


async def test_the_admin_port_tells_the_load_and_begins_a_drain(engine: str) -> None:
    async with opened_box(engine, capacity=7, public_url="https://box.example") as box:
        async with box.reader() as reader:
            box.tick()
            await until(lambda: box.gateway.core.readiness().ready)
            load = await box.request("GET", "/load", port=box.gateway.admin_port)
            assert load.json() == {
                "connections": 1,
                "capacity": 7,
                "deliveries_per_second": load.json()["deliveries_per_second"],
                "connects_per_second": load.json()["connects_per_second"],
                "ready": True,
                "draining": False,
                "sockjs_url": "https://box.example/sockjs",
                "websocket_url": "wss://box.example/websocket",
                "sse_url": "https://box.example/events",
            }
            await reader.is_up_to_date()
        assert not box.stop.is_set()
        begun = await box.request("POST", "/drain", port=box.gateway.admin_port)
        assert begun.status == 202
        assert box.stop.is_set()


async def test_the_admin_port_tells_what_operators_are_shown(engine: str) -> None:
    async with opened_box(engine) as box, box.reader("news.breaking") as reader:
        box.tick()
        await until(lambda: box.gateway.core.readiness().ready)

        async def report() -> dict[str, Any]:
            page = await box.request("GET", "/report", port=box.gateway.admin_port)
            found: dict[str, Any] = page.json()
            return found

        first = await report()
        assert (first["engine"], first["ready"], first["waiting_for"]) == (engine, True, [])
        assert first["figures"]["gateway_readers"] >= 1
        # A process's metrics include earlier tests of this process; rates are of the present.
        box.publish(body=1)
        await reader.hear_bodies(1)
        published = 0.0
        while "gateway_delay_seconds.p50" not in (figures := (await report())["figures"]):
            # The native engine counts up to a second later, when the rate may be 0 again.
            published = max(published, figures["gateway_publications"])
        assert max(published, figures["gateway_publications"]) > 0
        assert 0 <= figures["gateway_delay_seconds.p50"] <= figures["gateway_delay_seconds.p99"]


async def test_readers_dont_reach_the_admin_port_and_its_verbs(engine: str) -> None:
    async with opened_box(engine) as box:
        assert box.gateway.admin_port != box.gateway.port
        for method, path in (("GET", "/load"), ("GET", "/report"), ("POST", "/drain")):
            assert (await box.request(method, path)).status == 404


async def test_rates_are_of_the_last_second(engine: str) -> None:
    async with opened_box(engine) as box, box.reader("news.breaking") as reader:
        for n in range(10):
            box.publish(body=n)
        await reader.hear_bodies(10)

        async def load() -> float:
            page = await box.request("GET", "/load", port=box.gateway.admin_port)
            return float(page.json()["deliveries_per_second"])

        while (rate := await load()) == 0:
            """Each look is a request, so others get their turns."""
        assert 1 <= rate <= 11
