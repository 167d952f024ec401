from localfabric.chaos.answers import ResumeAnswer, promised_wrongly

# A message with a receipt at 5.0; its reader reconnected and asked at 10.0.
RECEIPTED = 5.0
HERE, ELSEWHERE = "ws://here/", "ws://elsewhere/"
TRUE = ResumeAnswer(asked=10.0, at=10.1, recovered=True, url=HERE)


def _wrongly(*answers: ResumeAnswer, arrived: float | None, given: float = 6.0) -> bool:
    times = {HERE: given, ELSEWHERE: 5.5}
    return promised_wrongly(answers, receipted=RECEIPTED, given=times, arrived=arrived)


def test_who_learned_that_nothing_is_missing_and_never_had_the_message_was_told_wrongly() -> None:
    assert _wrongly(TRUE, arrived=None)


def test_who_had_it_before_or_gets_it_after_the_answer_got_a_true_answer() -> None:
    assert not _wrongly(TRUE, arrived=6.0)
    assert not _wrongly(TRUE, arrived=11.0)


def test_no_answer_covers_messages_without_a_receipt_when_the_reader_asked() -> None:
    assert not promised_wrongly([TRUE], receipted=10.0, given={}, arrived=None)


def test_who_learned_that_something_may_be_missing_got_a_true_answer() -> None:
    assert not _wrongly(ResumeAnswer(asked=10.0, at=10.1, recovered=False), arrived=None)


def test_a_connection_that_was_soon_cut_off_promised_nothing_if_a_later_one_brings_it() -> None:
    short = ResumeAnswer(asked=10.0, at=10.1, recovered=True, until=12.0)
    again = ResumeAnswer(asked=20.0, at=20.1, recovered=True)
    gap = ResumeAnswer(asked=20.0, at=20.1, recovered=False)
    assert not _wrongly(short, again, arrived=21.0)
    assert not _wrongly(short, gap, arrived=21.0)
    assert not _wrongly(short, gap, arrived=None)
    assert _wrongly(short, again, arrived=None)


def test_what_comes_by_a_later_connection_alone_wasnt_brought_by_one_that_lasted() -> None:
    long = ResumeAnswer(asked=10.0, at=10.1, recovered=True, until=41.0, url=HERE)
    gap = ResumeAnswer(asked=50.0, at=50.1, recovered=False)
    assert _wrongly(long, gap, arrived=51.0)


def test_what_that_gateway_had_given_to_nobody_yet_was_to_come_later() -> None:
    long = ResumeAnswer(asked=10.0, at=10.1, recovered=True, until=41.0, url=HERE)
    gap = ResumeAnswer(asked=50.0, at=50.1, recovered=False)
    assert not _wrongly(long, gap, arrived=51.0, given=10.0)
    # But it must arrive before the end.
    assert _wrongly(long, arrived=None, given=10.0)
