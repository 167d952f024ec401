from collections import Counter

from newsfabric.chaos.books import Books, Gap
from newsfabric.chaos.reading import make_plans, read_line

TOPICS = [f"news.chaos-{n}" for n in range(8)]
PLANS = make_plans(TOPICS, ["http://a/", "http://b/"], count=240, seed=1)


def test_a_sixth_reads_event_streams_and_they_have_all_habits_and_both_homes() -> None:
    streams = [plan for plan in PLANS if plan.transport == "sse"]
    assert 240 / 6 <= len(streams) <= 240 / 5
    assert {plan.habit for plan in streams} == {"staying", "reconnecting", "roaming"}
    assert {plan.regions[0] for plan in streams} == {"http://a/", "http://b/"}


def test_there_are_readers_of_every_kind_with_two_topics_each() -> None:
    kinds = Counter((plan.habit, plan.transport) for plan in PLANS)
    assert len(kinds) == 9
    assert {len(set(plan.topics)) for plan in PLANS} == {2}


def test_a_gap_is_entered_with_its_reason_and_when_it_was_told() -> None:
    books = Books(plan.reader() for plan in PLANS)
    name = PLANS[0].name
    read_line(f"1000.5000\tgap\t{name}\t3\tnews.chaos-1\tstore\n", books, 990.0)
    assert books.told_gaps == [Gap(name, 3, "news.chaos-1", 10.5, "store")]
    assert books.account().gaps == 1


def test_a_dismissal_is_entered_when_it_is_asked_for_and_when_it_is_heard_back() -> None:
    books = Books(plan.reader() for plan in PLANS)
    read_line(f"1000.5000\tdismiss\t{PLANS[0].name}\t1\t7\n", books, 990.0)
    assert (books.account().dismissed, books.account().unheard) == (1, 1)
    read_line(f"1000.6000\tdismissed\t{PLANS[0].name}\t2\t7\n", books, 990.0)
    assert (books.account().dismissed, books.account().unheard) == (1, 0)


def test_lines_about_what_is_not_counted_change_nothing() -> None:
    books = Books(plan.reader() for plan in PLANS)
    before = books.account()
    read_line("1000.5\tready\t-\t0\n", books, 990.0)
    read_line(f"1000.5\tsubscribed\t{PLANS[0].name}\t3\tnews.chaos-1\n", books, 990.0)
    assert books.account() == before
