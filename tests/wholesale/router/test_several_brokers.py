"""A router over core brokers that stand side by side: it waits for none of them."""

from __future__ import annotations

import pytest
from core_cluster import message, running, until
from several_cores import SeveralCores

from newsfabric.topics import TopicTable
from newsfabric.topology import router_queues


@pytest.fixture
async def cores(topics: TopicTable) -> SeveralCores:
    return await SeveralCores.opened(topics)


def _depths(cores: SeveralCores, n: int) -> int:
    return sum(cores.broker(n).depth(queue) for queue in router_queues())


async def test_what_comes_by_two_brokers_is_routed_once_and_to_all_of_them(cores: SeveralCores):
    async with running(cores[0], link=cores.links) as router:
        for n in (0, 1):
            cores[n].publish(message(message_id="a", reply_to="me"))
        await until(lambda: all(len(found) == 2 for found in cores.receipts()))
        assert [[e.seq for e in found] for found in cores.envelopes()] == [[1], [1], [1]]
        assert len({e.id for found in cores.envelopes() for e in found}) == 1
        for found in cores.receipts():
            assert sorted(receipt.repeated for receipt in found) == [False, True]
        await router.settled()
    for n, core in enumerate(cores.each):
        core.link.lose()
        assert _depths(cores, n) == 0


async def test_what_is_refused_is_kept_by_all_of_them(cores: SeveralCores):
    async with running(cores[0], link=cores.links) as router:
        cores[1].publish(message(body=b"no JSON", reply_to="me"))
        await until(lambda: all(cores.receipts()))
        await router.settled()
        for core in cores.each:
            assert [m.body for m in core.arrived("rejected")] == [b"no JSON"]


async def test_a_broker_that_hangs_delays_no_receipt(cores: SeveralCores):
    # The clocks stand still, so no timer causes this.
    async with running(cores[0], link=cores.links, now=lambda: 100.0) as router:
        cores[0].publish(message(message_id="taken before", reply_to="me"))
        await until(lambda: _depths(cores, 0) == 0)
        cores.broker(0).hang()
        for n in (1, 2):
            cores[n].publish(*(message(message_id=f"{n} {i}", reply_to="me") for i in range(300)))
        await until(lambda: len(cores[1].receipts()) == len(cores[2].receipts()) == 601)
        await router.settled()
        assert router.gets_through
        assert [len(found) for found in cores.envelopes()[1:]] == [601, 601]
        cores.broker(0).go_on()
        cores[0].publish(message(message_id="after", reply_to="me"))
        await until(lambda: len(cores[1].receipts()) == 602)
        assert cores[0].envelopes()[-1].message_id == "after"


async def test_what_a_broker_delivers_again_when_it_is_back_is_answered_and_not_routed_again(
    cores: SeveralCores,
):
    async with running(cores[0], link=cores.links) as router:
        cores[0].publish(message(message_id="a", reply_to="me"))
        await until(lambda: _depths(cores, 0) == 0)
        cores.broker(0).hang()
        await until(lambda: cores[1].receipts())
        await router.settled()
        # The broker hasn't read the acknowledgement.
        cores.broker(0).cut()
        assert _depths(cores, 0) == 1
        cores.broker(0).go_on()
        await cores.broker(0).heal()
        await until(lambda: len(cores[1].receipts()) == 2)
        await router.settled()
        assert [receipt.repeated for receipt in cores[2].receipts()] == [False, True]
        assert [len(found) for found in cores.envelopes()[1:]] == [1, 1]


async def test_what_was_taken_from_a_broker_that_is_gone_is_routed_all_the_same(
    cores: SeveralCores,
):
    async with running(cores[0], link=cores.links) as router:
        cores[0].publish(*(message(message_id=str(n), reply_to="me") for n in range(100)))
        await until(lambda: _depths(cores, 0) == 0)
        cores.broker(0).cut()
        await until(lambda: len(cores[1].receipts()) == 100)
        await router.settled()
        assert [len(found) for found in cores.envelopes()[1:]] == [100, 100]


async def test_a_broker_that_is_back_without_its_exchanges_costs_the_others_nothing(
    cores: SeveralCores,
):
    async with running(cores[0], link=cores.links) as router:
        for exchange in ("postoffice", "outbound", "receipts", "rejected"):
            cores.broker(0).delete_exchange(exchange)
        cores[1].publish(*(message(message_id=str(n), reply_to="me") for n in range(100)))
        await until(lambda: len(cores[1].receipts()) == 100)
        await router.settled()
        assert router.gets_through
        assert [len(found) for found in cores.envelopes()[1:]] == [100, 100]


async def test_while_no_broker_takes_what_it_routes_it_says_so(cores: SeveralCores):
    async with running(cores[0], link=cores.links) as router:
        for broker in cores.brokers[:2]:
            broker.nacks = True
        cores.broker(2).cut()
        cores[0].publish(message(message_id="a", reply_to="me"))
        await until(lambda: not router.gets_through)
        cores.broker(1).nacks = False
        await until(lambda: router.gets_through and cores[1].receipts())
        await router.settled()


async def test_ticks_go_to_all_that_are_there(cores: SeveralCores):
    async with running(cores[0], link=cores.links) as router:
        await until(lambda: router.stream.numbering.is_listed)
        for core in cores.each:
            core.ticks()
        cores.broker(0).hang()
        await router.tick()
        assert cores[0].ticks() == []
        assert [bool(core.ticks()) for core in cores.each[1:]] == [True, True]
        cores.broker(0).go_on()
