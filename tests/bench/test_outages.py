"""The bench's report of publishers' waits."""

from __future__ import annotations

import math

from bench.outages import TOPICS, Figures, Sent, figures, quantile
from bench.programs import ROOT
from newsfabric.topics import load_topics


def test_each_class_has_its_figures_and_what_was_not_answered_is_counted() -> None:
    sent = [Sent(at=0.0, klass="gold", waited=n / 100) for n in range(1, 101)]
    sent += [Sent(at=0.0, klass="bronze")]
    assert figures("nothing", sent) == [
        Figures(
            outage="nothing", klass="gold", messages=100, receipts=100, p50=0.5, p99=0.99, worst=1.0
        ),
        Figures(
            outage="nothing",
            klass="bronze",
            messages=1,
            receipts=0,
            p50=math.inf,
            p99=math.inf,
            worst=math.inf,
        ),
    ]
    assert [one.unanswered for one in figures("nothing", sent)] == [0, 1]


def test_a_quantile_is_one_of_the_values() -> None:
    assert [quantile([1.0, 2.0, 3.0], share) for share in (0.0, 0.5, 0.99, 1.0)] == [1, 2, 3, 3]


def test_its_topics_are_of_the_classes_that_it_says() -> None:
    table = load_topics(ROOT / "topics.toml")
    assert {topic: table.known(topic).topic_class for topic in TOPICS} == TOPICS
