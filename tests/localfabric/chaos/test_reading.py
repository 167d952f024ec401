from collections import Counter

from localfabric.chaos.delivery_record import DeliveryRecord, RecordedMessage, ReportedGap
from localfabric.chaos.reading import make_plans, read_line

TOPICS = [f"news.chaos-{n}" for n in range(8)]
PLANS = make_plans(TOPICS, ["http://a/", "http://b/"], count=240, seed=1, minutes=10.0)


def test_a_sixth_reads_event_streams_and_they_have_all_habits_and_both_homes() -> None:
    streams = [plan for plan in PLANS if plan.transport == "sse"]
    assert 240 / 6 <= len(streams) <= 240 / 5
    assert {plan.habit for plan in streams} == {"staying", "reconnecting", "roaming", "absent"}
    assert {plan.regions[0] for plan in streams} == {"http://a/", "http://b/"}


def test_each_habit_is_at_home_in_each_region() -> None:
    for endpoints in (["http://a/", "http://b/"], ["http://a/", "http://b/", "http://c/"]):
        plans = make_plans(TOPICS, endpoints, count=240, seed=1, minutes=10.0)
        homes = {(plan.habit, plan.regions[0]) for plan in plans}
        assert len(homes) == 4 * len(endpoints)


def test_there_are_readers_of_every_kind_with_two_topics_each() -> None:
    kinds = Counter((plan.habit, plan.transport) for plan in PLANS)
    assert len(kinds) == 12
    assert {len(set(plan.topics)) for plan in PLANS} == {2}


def test_who_is_absent_leaves_early_and_asks_for_the_whole_run_where_it_cant_go_on() -> None:
    absent = [plan for plan in PLANS if plan.habit == "absent"]
    assert len(absent) == 240 / 12
    assert {plan.rewind for plan in absent} == {"15m"}
    assert all(plan.stays is not None and plan.stays <= 30 for plan in absent)
    assert all(plan.reader().goes_away for plan in absent)


def test_who_learned_that_nothing_is_missing_and_then_misses_something_was_told_wrongly() -> None:
    record = DeliveryRecord(plan.reader() for plan in PLANS)
    name, topic = PLANS[0].name, PLANS[0].topics[0]
    record.sent(
        RecordedMessage(n=7, topic=topic, klass="gold", region="oregon", sent=2.0, receipted=3.0)
    )
    for line in (
        f"995.0000\tended\t{name}\t1\n",
        f"1000.5000\trecovered\t{name}\t2\t{topic}\t1000.0000\n",
    ):
        read_line(line, record, 990.0)
    wrong = [each for each in record.account().wrong if each.what == "told wrongly"]
    assert [(each.n, each.readers) for each in wrong] == [(7, (name,))]
    assert record.account().recovered == 1
    read_line(f"1000.6000\tnew\t{name}\t2\t7\n", record, 990.0)
    assert record.account().count("told wrongly") == 0


def test_what_the_history_had_is_had_but_no_gateway_has_given_it() -> None:
    record = DeliveryRecord(plan.reader() for plan in PLANS)
    topic = PLANS[0].topics[0]
    first, second = (plan.name for plan in [p for p in PLANS if topic in p.topics][:2])
    record.sent(
        RecordedMessage(n=7, topic=topic, klass="gold", region="oregon", sent=2.0, receipted=3.0)
    )
    for line in (
        f"992.0000\tconnected\t{first}\t1\tws://a/\n",
        f"993.0000\tgap\t{first}\t1\t{topic}\tstore\n",
        f"994.0000\treread\t{first}\t1\t7\n",
        # The second reader's gateway reported a gap to the first: its reply isn't wrong yet.
        f"999.0000\tconnected\t{second}\t1\tws://a/\n",
        f"1000.5000\trecovered\t{second}\t1\t{topic}\t1000.0000\n",
        f"1050.0000\tended\t{second}\t1\n",
        f"1051.0000\tgap\t{second}\t2\t{topic}\tstore\n",
        f"1052.0000\treread\t{second}\t2\t7\n",
    ):
        read_line(line, record, 990.0)
    account = record.account()
    assert (account.reread, account.repeats, account.count("told wrongly")) == (2, 0, 0)
    assert first not in {name for _, names in record.missing() for name in names}


def test_a_gap_is_entered_with_its_reason_and_when_it_was_reported() -> None:
    record = DeliveryRecord(plan.reader() for plan in PLANS)
    name = PLANS[0].name
    read_line(f"1000.5000\tgap\t{name}\t3\tnews.chaos-1\tstore\n", record, 990.0)
    assert record.reported_gaps == [ReportedGap(name, 3, "news.chaos-1", 10.5, "store")]
    assert record.account().gaps == 1


def test_a_dismissal_is_entered_when_it_is_asked_for_and_when_it_is_heard_back() -> None:
    record = DeliveryRecord(plan.reader() for plan in PLANS)
    read_line(f"1000.5000\tdismiss\t{PLANS[0].name}\t1\t7\n", record, 990.0)
    assert (record.account().dismissed, record.account().unheard) == (1, 1)
    read_line(f"1000.6000\tdismissed\t{PLANS[0].name}\t2\t7\n", record, 990.0)
    assert (record.account().dismissed, record.account().unheard) == (1, 0)


def test_lines_about_what_is_not_counted_change_nothing() -> None:
    record = DeliveryRecord(plan.reader() for plan in PLANS)
    before = record.account()
    read_line("1000.5\tready\t-\t0\n", record, 990.0)
    read_line(f"1000.5\tsubscribed\t{PLANS[0].name}\t3\tnews.chaos-1\n", record, 990.0)
    assert record.account() == before
