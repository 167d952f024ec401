"""A frontdesk's picture of the fabric, made from reports, and the events that it notices."""

from __future__ import annotations

import dataclasses

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pictures import BOX, KEEPER, LOAD, NODE, NOW_MS, PLACE, ROUTER, SHOVEL, PlayedPicture

from newsfabric.messages.reports import CERTIFICATE_ENDS, KINDS, MAX_SHOVELS, Busy, Report
from newsfabric.numbers import is_number
from wholesale.frontdesk.board.answers_elsewhere import parse_answer
from wholesale.frontdesk.board.picture import QUIET_AT_FIRST
from wholesale.frontdesk.board.region_page import SHOVELS_OF_A_BOX
from wholesale.frontdesk.presence.presence import MAX_BOXES, MAX_OF_KIND, MAX_SERVICES, login_of

FIGURES = {
    "gateway_publications": 3.0,
    "gateway_delay_seconds.p50": 0.012,
    "gateway_delay_seconds.p99": 0.1,
}


@pytest.fixture
def played() -> PlayedPicture:
    return PlayedPicture()


# --- the document


def test_a_box_is_shown_with_its_load_and_its_figures(played: PlayedPicture):
    played.pass_by(1, dataclasses.replace(BOX, figures=FIGURES), LOAD)
    (box,) = played.region()["boxes"]
    assert box == {
        "name": "oregon-retail-1",
        "state": "ready",
        "waiting_for": [],
        "readers": 30,
        "capacity": 100,
        "messages_per_second": 3.0,
        "deliveries_per_second": 60.0,
        "connects_per_second": 2.0,
        "delay_p50_ms": 12.0,
        "delay_p99_ms": 100.0,
        "engine": "native",
        "version": "1.0",
        "age_ms": 1000,
        "started_ms": 1,
        "left": False,
        "figures": FIGURES,
    }


def test_a_service_is_shown_with_why_it_waits(played: PlayedPicture):
    played.pass_by(1, dataclasses.replace(ROUTER, state="starting", waiting_for=("store",)), LOAD)
    region = played.region()
    assert region["services"][0] == {
        "name": "oregon-router-1",
        "kind": "router",
        "version": "1.0",
        "state": "starting",
        "waiting_for": ["store"],
        "age_ms": 1000,
        "started_ms": 1,
        "left": False,
        "figures": {},
    }
    assert region["state"] == "troubled"
    assert region["why"] == ["oregon-router-1 is not ready: waits for store"]


def test_a_box_that_only_says_its_load_is_shown_too(played: PlayedPicture):
    played.pass_by(1, LOAD)
    (box,) = played.region()["boxes"]
    assert (box["state"], box["readers"], box["figures"]) == ("ready", 30, {})


def test_a_region_where_all_is_as_it_should_be_is_well(played: PlayedPicture):
    keeper = dataclasses.replace(KEEPER, shovels=(SHOVEL,), nodes=(NODE,))
    played.pass_by(3, ROUTER, BOX, LOAD, keeper)
    region = played.region()
    assert (region["state"], region["why"]) == ("well", [])
    assert region["clusters"] == [
        {
            "name": "oregon/client",
            "nodes": [_node("oregon-client-1", None)],
        },
        {
            "name": "oregon/core",
            "nodes": [_node("oregon-core-1", 1000)],
        },
    ]
    (shovel,) = region["shovels"]
    assert shovel["canary_age_ms"] == 1100
    assert shovel["messages_per_second"] == 12.5


def _ends(process: Report, days: float, use: str = "server") -> Report:
    """Return ``process`` with a certificate that ends in that many days."""
    ends = NOW_MS / 1000 + days * 86_400
    return dataclasses.replace(process, figures={f"{CERTIFICATE_ENDS}{use}": ends})


def _why(played: PlayedPicture, *report: Report) -> tuple[str, list[str]]:
    played.pass_by(1, LOAD, *report)
    region = played.region()
    return region["state"], region["why"]


@pytest.mark.parametrize(
    ("days", "state", "why"),
    [
        (30.5, "well", []),
        (29.5, "well", ["server certificate ends on 2025-01-30: oregon-router-1"]),
        (2.5, "well", ["server certificate ends on 2025-01-03: oregon-router-1"]),
        (1.5, "troubled", ["server certificate ends on 2025-01-02: oregon-router-1"]),
        (-0.5, "troubled", ["server certificate ended on 2024-12-31: oregon-router-1"]),
        (-1e12, "troubled", ["server certificate ended on 1970-01-01: oregon-router-1"]),
        (1e12, "well", []),
    ],
)
def test_a_certificate_that_ends_soon_is_a_reason_and_at_last_trouble(
    played: PlayedPicture, days: float, state: str, why: list[str]
):
    assert _why(played, BOX, _ends(ROUTER, days)) == (state, why)


def test_certificates_that_end_on_one_day_are_one_reason(played: PlayedPicture):
    others = [
        dataclasses.replace(_ends(ROUTER, 9.1, "authority"), name=f"oregon-router-{n}")
        for n in (3, 1, 2)
    ]
    _, why = _why(played, BOX, *others, _ends(KEEPER, 3.2))
    assert why == [
        "server certificate ends on 2025-01-04: oregon-shovels",
        "authority certificate ends on 2025-01-10: oregon-router-1 and 2 more",
    ]


def test_what_is_wrong_now_is_shown_before_what_will_be(played: PlayedPicture):
    state, why = _why(played, BOX, _ends(ROUTER, 9), dataclasses.replace(KEEPER, state="starting"))
    assert state == "troubled"
    assert why == [
        "oregon-shovels is not ready",
        "server certificate ends on 2025-01-10: oregon-router-1",
    ]


def test_who_is_gone_has_no_certificate_that_ends(played: PlayedPicture):
    played.pass_by(1, ROUTER, BOX, LOAD, _ends(KEEPER, 3))
    played.pass_by(4, ROUTER, BOX, LOAD)
    assert played.region()["why"] == ["oregon-shovels is silent"]


def test_totals_are_of_those_who_are_there(played: PlayedPicture):
    routers = [
        dataclasses.replace(
            ROUTER, name=f"r-{n}", figures={"router_stage_left_messages.route": 2.5}
        )
        for n in (1, 2)
    ]
    quick, slow = (
        dataclasses.replace(
            BOX,
            name=f"b-{n}",
            figures={
                "gateway_publications": weight,
                "gateway_delay_seconds.p50": delay,
                "gateway_delay_seconds.p99": 2 * delay,
            },
        )
        for n, weight, delay in ((1, 10.0, 0.01), (2, 1.0, 0.5))
    )
    loads = [dataclasses.replace(LOAD, box=f"b-{n}") for n in (1, 2, 3)]
    played.pass_by(1, *routers, quick, slow, *loads)
    played.pass_by(3, *routers, quick, slow, *loads[:2])
    assert played.region()["totals"] == {
        "readers": 60,
        "capacity": 200,
        "boxes": 2,
        "boxes_ready": 2,
        "messages_per_second": 5.0,
        "deliveries_per_second": 120.0,
        "connects_per_second": 4.0,
        # The median of the boxes, weighted by published messages, and the slowest box.
        "delay_p50_ms": 10.0,
        "delay_p99_ms": 1000.0,
    }


def test_the_busiest_topics_of_all_routers_are_added_up(played: PlayedPicture):
    first = dataclasses.replace(ROUTER, topics=(Busy(name="a", messages_per_second=2.0),))
    second = dataclasses.replace(
        ROUTER,
        name="oregon-router-2",
        topics=(Busy(name="b", messages_per_second=3.0), Busy(name="a", messages_per_second=2.5)),
        publishers=(Busy(name="cms", messages_per_second=5.0),),
    )
    played.pass_by(1, first, second)
    region = played.region()
    assert region["topics"] == [
        {"name": "a", "messages_per_second": 4.5},
        {"name": "b", "messages_per_second": 3.0},
    ]
    assert region["publishers"] == [{"name": "cms", "messages_per_second": 5.0}]


def test_an_empty_region_is_a_document_too(played: PlayedPicture):
    document = played.board_document()
    assert document["regions"][0]["why"] == ["no box is ready"]
    assert document["regions"][0]["totals"]["delay_p50_ms"] is None
    assert [region["name"] for region in document["regions"]] == ["oregon", "dublin"]
    assert [region["name"] for region in played.board_document(own=True)["regions"]] == ["oregon"]


# --- processes that start and end


def test_who_is_silent_for_two_and_a_half_seconds_is_gone(played: PlayedPicture):
    played.pass_by(6, ROUTER, BOX, LOAD)
    played.pass_by(1.5, BOX, LOAD)
    assert played.events() == []
    played.pass_by(0.25, BOX, LOAD)
    assert played.events() == [("process_gone", "oregon-router-1")]
    assert played.texts() == ["oregon-router-1 has been silent for 3 s"]
    assert played.region()["services"][0]["state"] == "gone"
    assert played.region()["why"] == ["oregon-router-1 is silent"]
    played.pass_by(1, BOX, LOAD, ROUTER)
    assert played.events()[-1] == ("process_back", "oregon-router-1")


def test_who_was_gone_for_ten_minutes_is_forgotten(played: PlayedPicture):
    played.pass_by(2, ROUTER, BOX, LOAD)
    played.pass_by(590, BOX, LOAD)
    assert [one["name"] for one in played.region()["services"]] == ["oregon-router-1"]
    played.pass_by(15, BOX, LOAD)
    assert played.region()["services"] == []


def test_who_has_drained_is_listed_for_half_a_minute_and_not_missed(played: PlayedPicture):
    played.pass_by(2, dataclasses.replace(ROUTER, state="draining"), BOX, LOAD)
    played.pass_by(25, BOX, LOAD)
    assert [one["state"] for one in played.region()["services"]] == ["gone"]
    assert played.region()["state"] == "well"
    played.pass_by(10, BOX, LOAD)
    assert played.region()["services"] == []


def test_who_is_there_when_the_frontdesk_begins_is_no_news(played: PlayedPicture):
    played.pass_by(QUIET_AT_FIRST, ROUTER, BOX, LOAD)
    played.pass_by(3, ROUTER, BOX, LOAD)
    assert played.events() == []
    played.pass_by(1, ROUTER, BOX, LOAD, dataclasses.replace(ROUTER, name="oregon-router-2"))
    assert played.events() == [("process_ready", "oregon-router-2")]


def test_a_box_that_stops_being_ready_says_why(played: PlayedPicture):
    played.pass_by(6, BOX, LOAD)
    waiting = dataclasses.replace(BOX, state="starting", waiting_for=("gateway",))
    played.pass_by(1, dataclasses.replace(LOAD, state="starting"), waiting)
    assert played.events() == [("process_not_ready", "oregon-retail-1")]
    assert played.texts() == ["oregon-retail-1 is not ready: waits for gateway"]
    played.pass_by(1, LOAD, BOX)
    assert played.events()[-1] == ("process_ready", "oregon-retail-1")


def test_a_box_that_was_ordered_to_leave_isnt_missed(played: PlayedPicture):
    played.pass_by(6, BOX, LOAD, ROUTER)
    leaving = (
        dataclasses.replace(LOAD, state="draining"),
        dataclasses.replace(BOX, state="draining"),
    )
    other = dataclasses.replace(LOAD, box="oregon-retail-2")
    played.pass_by(2, *leaving, ROUTER, other)
    played.pass_by(4, ROUTER, other)
    assert played.events() == [
        ("box_draining", "oregon-retail-1"),
        ("process_ready", "oregon-retail-2"),
        ("process_gone", "oregon-retail-1"),
    ]
    assert played.texts()[-1] == "oregon-retail-1 has left, as it was told to"
    assert played.region()["state"] == "well"
    assert [(one["name"], one["state"], one["left"]) for one in played.region()["boxes"]] == [
        ("oregon-retail-1", "gone", True),
        ("oregon-retail-2", "ready", False),
    ]


def test_who_was_started_anew_at_once_is_seen(played: PlayedPicture):
    played.pass_by(6, ROUTER, BOX, LOAD)
    played.pass_by(1, dataclasses.replace(ROUTER, started_ms=7), BOX, LOAD)
    assert played.events() == [("process_back", "oregon-router-1")]
    assert played.texts() == ["oregon-router-1 was started anew"]


# --- clocks


def test_a_report_that_was_overtaken_is_ignored(played: PlayedPicture):
    new, old = (dataclasses.replace(ROUTER, sent_ms=ms, version=str(ms)) for ms in (20, 10))
    assert played.hear(new, old) == [True, False]
    assert played.region()["services"][0]["version"] == "20"


def test_a_clock_that_is_set_back_keeps_nobody_silent(played: PlayedPicture):
    ahead = dataclasses.replace(ROUTER, sent_ms=10**12)
    played.pass_by(6, LOAD, BOX)
    played.hear(ahead)
    played.pass_by(10, ROUTER, LOAD, BOX)
    assert [kind for kind, _ in played.events()] == ["process_ready"]
    assert played.region()["services"][0]["age_ms"] == 1000


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1))
def test_a_processs_clock_says_nothing_about_its_age(started_ms: int, sent_ms: int):
    played = PlayedPicture()
    played.hear(dataclasses.replace(ROUTER, started_ms=started_ms, sent_ms=sent_ms))
    played.now = 1.5
    played.update_events()
    assert played.region()["services"][0]["age_ms"] == 1500


def test_our_own_clock_that_jumps_moves_all_events_alike(played: PlayedPicture):
    played.pass_by(6, ROUTER, BOX, LOAD)
    played.pass_by(6, BOX, LOAD)
    (event,) = played.picture.picture_document(played.now, NOW_MS, own=True)["events"]
    (later,) = played.picture.picture_document(played.now, NOW_MS + 3_600_000, own=True)["events"]
    assert later["at_ms"] - event["at_ms"] == 3_600_000


# --- lost links


def test_while_the_core_is_away_nobody_is_called_gone(played: PlayedPicture):
    played.pass_by(6, ROUTER, BOX, LOAD)
    played.core = False
    played.pass_by(60)
    assert played.events() == [("node_away", "oregon/core")]
    region = played.region()
    assert region["state"] == "troubled"
    assert region["why"][:2] == [
        "oregon-frontdesk-1 reaches no node of oregon/core: it hears nobody",
        "oregon-core-1 is away",
    ]
    assert region["services"][0]["state"] == "ready"
    assert region["services"][0]["age_ms"] >= 60_000
    played.core = True
    played.pass_by(2)
    assert played.events()[1:] == [("node_back", "oregon/core")]
    played.pass_by(1, BOX, LOAD)
    assert ("process_gone", "oregon-router-1") in played.events()
    assert ("process_gone", "oregon-retail-1") not in played.events()


def test_totals_are_of_what_was_heard_within_seconds(played: PlayedPicture):
    router = dataclasses.replace(
        ROUTER,
        figures={"router_stage_left_messages.route": 2.5},
        topics=(Busy(name="a", messages_per_second=2.5),),
    )
    played.pass_by(6, router, BOX, LOAD)
    played.core = False
    played.pass_by(4)
    totals = played.region()["totals"]
    assert (totals["boxes_ready"], totals["capacity"], totals["messages_per_second"]) == (
        1,
        100,
        2.5,
    )
    played.pass_by(1)
    region = played.region()
    assert region["totals"] == _nobody()
    assert region["topics"] == []
    assert [box["age_ms"] for box in region["boxes"]] == [6000]


def test_a_node_is_shown_with_the_age_of_its_keepers_report(played: PlayedPicture):
    keeper = dataclasses.replace(
        KEEPER, nodes=(NODE, dataclasses.replace(NODE, cluster="oregon/client", node="c-1"))
    )
    played.pass_by(6, keeper, BOX, LOAD)
    played.pass_by(40, BOX, LOAD)
    assert _ages(played) == {"c-1": 41_000, "oregon-client-1": None, "oregon-core-1": 41_000}
    played.core = False
    played.update_events()
    assert _ages(played)["oregon-core-1"] == 0


def _ages(played: PlayedPicture) -> dict[str, int | None]:
    nodes = [node for cluster in played.region()["clusters"] for node in cluster["nodes"]]
    return {node["node"]: node["age_ms"] for node in nodes}


def _node(name: str, age_ms: int | None) -> dict[str, object]:
    return {"node": name, "running": True, "alarm": "", "unfit": 0, "age_ms": age_ms}


def _nobody() -> dict[str, float | None]:
    """Return the totals of a region without any report."""
    return {
        "readers": 0,
        "capacity": 0,
        "boxes": 0,
        "boxes_ready": 0,
        "messages_per_second": 0.0,
        "deliveries_per_second": 0.0,
        "connects_per_second": 0.0,
        "delay_p50_ms": None,
        "delay_p99_ms": None,
    }


def test_after_the_frontdesk_was_stopped_for_a_while_nobody_is_called_gone(played: PlayedPicture):
    played.pass_by(6, ROUTER, BOX, LOAD)
    played.now += 30
    played.update_events()
    played.pass_by(4, ROUTER, BOX, LOAD)
    assert played.events() == []


def test_the_client_cluster_is_missed(played: PlayedPicture):
    played.pass_by(6, BOX, LOAD)
    played.client = False
    played.pass_by(1, BOX, LOAD)
    assert played.events() == [("node_away", "oregon/client")]
    assert played.region()["why"] == ["oregon-frontdesk-1 reaches no node of oregon/client"]


# --- shovels and nodes


def test_a_shovel_that_brings_nothing_is_an_event_and_a_reason(played: PlayedPicture):
    keeper = dataclasses.replace(KEEPER, shovels=(SHOVEL,))
    played.pass_by(6, keeper, BOX, LOAD)
    old = dataclasses.replace(SHOVEL, canary_age_ms=10_500)
    played.pass_by(1, dataclasses.replace(KEEPER, shovels=(old,)), BOX, LOAD)
    assert played.events() == [("shovel_silent", "oregon/core/publish.oregon.1")]
    assert played.region()["why"] == ["oregon/core/publish.oregon.1 brings nothing"]
    made_anew = dataclasses.replace(old, restarts=1)
    played.pass_by(1, dataclasses.replace(KEEPER, shovels=(made_anew,)), BOX, LOAD)
    assert played.events()[-1] == ("shovel_remade", "oregon/core/publish.oregon.1")
    played.pass_by(1, keeper, BOX, LOAD)
    assert played.events()[-1] == ("shovel_back", "oregon/core/publish.oregon.1")


def test_a_shovel_that_was_never_heard_of_is_no_event(played: PlayedPicture):
    young = dataclasses.replace(SHOVEL, canary_age_ms=None, state="starting")
    played.pass_by(6, dataclasses.replace(KEEPER, shovels=(young,)), BOX, LOAD)
    assert played.region()["why"] == ["oregon/core/publish.oregon.1 brings nothing"]
    played.pass_by(1, dataclasses.replace(KEEPER, shovels=(SHOVEL,)), BOX, LOAD)
    assert played.events() == []


def test_of_two_keepers_the_one_that_is_there_is_believed(played: PlayedPicture):
    gone = dataclasses.replace(KEEPER, name="k-2", shovels=(SHOVEL,), nodes=(NODE,))
    played.pass_by(1, gone)
    worse = dataclasses.replace(SHOVEL, messages_per_second=1.0)
    played.pass_by(4, dataclasses.replace(KEEPER, shovels=(worse,), nodes=(NODE,)))
    (shovel,) = played.region()["shovels"]
    assert shovel["messages_per_second"] == 1.0


def test_without_a_keeper_nobody_knows_how_shovels_are(played: PlayedPicture):
    played.pass_by(6, dataclasses.replace(KEEPER, shovels=(SHOVEL,)), BOX, LOAD)
    played.pass_by(60, BOX, LOAD)
    (shovel,) = played.region()["shovels"]
    assert (shovel["state"], shovel["messages_per_second"]) == ("unknown", None)
    assert shovel["canary_age_ms"] > 60_000
    assert played.events() == [("process_gone", "oregon-shovels")]


def test_a_node_that_goes_and_comes_is_an_event(played: PlayedPicture):
    keeper = dataclasses.replace(KEEPER, nodes=(NODE,))
    played.pass_by(6, keeper, BOX, LOAD)
    away = dataclasses.replace(NODE, running=False)
    played.pass_by(1, dataclasses.replace(KEEPER, nodes=(away,)), BOX, LOAD)
    assert played.region()["why"] == ["oregon-core-1 is away"]
    played.pass_by(1, keeper, BOX, LOAD)
    assert played.events() == [("node_away", "oregon-core-1"), ("node_back", "oregon-core-1")]


def test_a_broker_with_which_shovels_dont_work_is_a_reason_and_says_what_to_do(
    played: PlayedPicture,
):
    unfit = dataclasses.replace(NODE, unfit=2)
    played.pass_by(1, dataclasses.replace(KEEPER, nodes=(unfit,)), BOX, LOAD)
    assert played.region()["why"] == [
        "oregon-core-1 doesn't make 2 shovels work: restart the broker, "
        "what runs its shovels may be dead"
    ]


def test_an_alarm_is_a_reason(played: PlayedPicture):
    alarmed = dataclasses.replace(NODE, alarm="memory")
    played.pass_by(1, dataclasses.replace(KEEPER, nodes=(alarmed,)), BOX, LOAD)
    assert played.region()["why"] == ["oregon-core-1 has a memory alarm"]


# --- trusted reports


def test_a_box_tells_of_its_own_shovels_alone(played: PlayedPicture):
    own = dataclasses.replace(SHOVEL, name="upstream", runs_on="oregon-retail-1")
    played.pass_by(1, dataclasses.replace(BOX, shovels=(own, SHOVEL), nodes=(NODE,)), LOAD)
    assert [one["runs_on"] for one in played.region()["shovels"]] == ["oregon-retail-1"]


def test_a_router_tells_of_no_shovels_and_a_box_of_no_topics(played: PlayedPicture):
    busy = (Busy(name="x", messages_per_second=1.0),)
    played.pass_by(1, dataclasses.replace(ROUTER, shovels=(SHOVEL,)))
    played.pass_by(1, dataclasses.replace(BOX, topics=busy, publishers=busy))
    region = played.region()
    assert (region["shovels"], region["topics"], region["publishers"]) == ([], [], [])


def test_whose_word_a_report_is_follows_from_its_kind():
    assert login_of(BOX) == "box.oregon-retail-1"
    assert login_of(ROUTER) == "router.oregon"
    assert login_of(KEEPER) == "keeper.oregon"


@pytest.mark.parametrize(
    "field",
    [{"region": "dublin"}, {"name": "Not a name"}, {"name": ""}, {"state": "splendid"}],
)
def test_what_isnt_of_this_region_or_no_name_is_ignored(
    played: PlayedPicture, field: dict[str, str]
):
    assert played.hear(dataclasses.replace(ROUTER, **field)) == [False]  # type: ignore[arg-type]
    assert played.region()["services"] == []


def test_there_are_only_so_many_names(played: PlayedPicture):
    boxes = [dataclasses.replace(LOAD, box=f"b-{n}") for n in range(MAX_BOXES + 5)]
    assert played.hear(*boxes).count(True) == MAX_BOXES
    routers = [dataclasses.replace(ROUTER, name=f"r-{n}") for n in range(MAX_OF_KIND + 5)]
    assert played.hear(*routers).count(True) == MAX_OF_KIND


def test_who_is_gone_makes_room_for_who_comes(played: PlayedPicture):
    played.hear(*(dataclasses.replace(ROUTER, name=f"r-{n}") for n in range(MAX_OF_KIND)))
    played.pass_by(4)
    assert played.hear(dataclasses.replace(ROUTER, name="new")) == [True]


def test_names_that_one_login_makes_up_push_out_nobody_of_another(played: PlayedPicture):
    played.hear(KEEPER)
    played.pass_by(4)
    for n in range(3 * MAX_SERVICES):
        played.hear(dataclasses.replace(ROUTER, name=f"r-{n}"))
    services = {one["name"]: one["state"] for one in played.region()["services"]}
    assert services[KEEPER.name] == "gone"
    assert len(services) == MAX_OF_KIND + 1
    assert played.hear(dataclasses.replace(ROUTER, kind="mailbox", name="m-1")) == [True]


def test_shovels_that_boxes_make_up_leave_the_region_readable(played: PlayedPicture):
    made_up = tuple(
        dataclasses.replace(SHOVEL, name=f"s-{n}", runs_on="") for n in range(MAX_SHOVELS)
    )
    for n in range(30):
        name = f"b-{n}"
        shovels = tuple(dataclasses.replace(one, runs_on=name) for one in made_up)
        played.hear(dataclasses.replace(BOX, name=name, shovels=shovels))
    played.hear(dataclasses.replace(KEEPER, shovels=(SHOVEL,)))
    document = played.board_document(own=True)
    assert parse_answer(orjson.dumps(document), "oregon").region["name"] == "oregon"
    shown = {(one["runs_on"], one["name"]) for one in document["regions"][0]["shovels"]}
    assert (SHOVEL.runs_on, SHOVEL.name) in shown
    assert len(shown) == 30 * SHOVELS_OF_A_BOX + 1


# --- any report

names = st.sampled_from(["a", "b", "oregon-core-1", "x" * 63])
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
rates = st.floats(0, 9e18)
counts = st.integers(0, 2**63 - 1)
hostile = st.builds(
    Report,
    region=st.sampled_from(["oregon", "dublin"]),
    name=names,
    kind=st.sampled_from(KINDS),
    version=texts,
    started_ms=counts,
    sent_ms=counts,
    state=st.sampled_from(["starting", "ready", "draining", "gone", "<b>"]),
    waiting_for=st.lists(texts, max_size=3).map(tuple),
    engine=texts,
    figures=st.dictionaries(
        st.sampled_from([*FIGURES, "router_stage_left_messages.route", "gateway_closes.x"]),
        st.floats(-9e18, 9e18),
    ),
    shovels=st.lists(
        st.builds(
            dataclasses.replace,
            st.just(SHOVEL),
            name=names,
            runs_on=names,
            state=texts,
            canary_age_ms=st.none() | counts,
            messages_per_second=st.none() | rates,
            restarts=counts,
        ),
        max_size=3,
    ).map(tuple),
    nodes=st.lists(
        st.builds(
            dataclasses.replace, st.just(NODE), cluster=texts, node=names, running=st.booleans()
        ),
        max_size=3,
    ).map(tuple),
    topics=st.lists(st.builds(Busy, name=texts, messages_per_second=rates), max_size=3).map(tuple),
)
loads = st.builds(
    dataclasses.replace,
    st.just(LOAD),
    box=names,
    state=st.sampled_from(["starting", "ready", "draining"]),
    connections=counts,
    capacity=counts,
    deliveries_per_second=rates,
    sent_ms=counts,
)


@given(st.lists(st.one_of(hostile, loads, st.floats(0, 700)), max_size=25))
def test_whatever_boxes_report_there_is_a_document_that_other_frontdesks_read(
    steps: list[object],
):
    played = PlayedPicture()
    for step in steps:
        if isinstance(step, float):
            played.now += step
            played.core = not played.core if step > 600 else played.core
            played.update_events()
        else:
            played.hear(step)  # type: ignore[arg-type]
    played.update_events()
    answer = parse_answer(orjson.dumps(played.board_document(own=True)), "oregon")
    assert answer.region["name"] == PLACE.region
    assert all(is_number(event["seq"], 0, 2**63) for event in answer.events)
