from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from localfabric.chaos.devices import Clearing, make_devices
from newsfabric.messages.envelope import id_of, identity_of_id

TOKENS: Mapping[str, str] = {f"u{n}": f"token-{n}" for n in range(4)}
PLANS = make_devices(TOKENS, ["http://a/", "http://b/"], seed=1)


def _id(n: int, *, region: int = 0) -> str:
    """Return the id of message ``n``, as routed by one region or the other."""
    return id_of(1_000_000 + region, n + 1)


def _heard(clearing: Clearing, n: int, *, region: int = 0) -> int | None:
    return clearing.note_dismissed(identity_of_id(_id(n, region=region)))


def test_each_user_has_a_phone_that_stays_and_a_page_that_comes_and_goes_at_home_elsewhere() -> (
    None
):
    for n, user in enumerate(TOKENS):
        phone, page = (plan for plan in PLANS if plan.topics == (f"user.{user}",))
        assert (phone.habit, phone.stays, phone.away) == ("phone", None, 0.0)
        assert page.habit == "page"
        assert page.stays is not None
        assert page.away > 0
        assert phone.regions[0] != page.regions[0]
        assert phone.token == page.token == f"token-{n}"


def test_devices_log_in_over_websocket_and_sockjs_alike() -> None:
    kinds = {(plan.habit, plan.transport) for plan in PLANS}
    assert {("phone", "sockjs"), ("page", "sockjs"), ("phone", "websocket")} <= kinds


def test_a_token_isnt_shown() -> None:
    assert "token-0" not in repr(PLANS[0])


def test_one_message_of_three_is_kept_and_the_others_are_dismissed() -> None:
    clearing = Clearing()
    assert [clearing.had(n, _id(n), 0.0) for n in range(6)] == [None, 1, 2, None, 4, 5]


def test_the_oldest_that_is_kept_goes_when_there_are_too_many() -> None:
    clearing = Clearing(most_kept=2)
    assert [clearing.had(n, _id(n), 0.0) for n in (0, 3, 6, 9)] == [None, None, 0, 3]


def test_a_dismissal_is_sent_at_once_and_again_until_it_is_heard() -> None:
    clearing = Clearing()
    clearing.had(1, _id(1), 10.0)
    clearing.had(2, _id(2), 10.0)
    assert clearing.due(10.0, 1) == [_id(1)]
    assert clearing.due(10.0, 9) == [_id(2)]
    assert clearing.due(14.9, 9) == []
    assert _heard(clearing, 1) == 1
    assert clearing.due(15.0, 9) == [_id(2)]


def test_it_is_heard_once_by_whichever_copy_of_the_message_it_names() -> None:
    clearing = Clearing()
    clearing.had(1, _id(1), 0.0)
    assert _heard(clearing, 1, region=7) == 1
    assert _heard(clearing, 1) is None


def test_what_isnt_in_the_mailbox_any_more_was_dismissed() -> None:
    clearing = Clearing()
    for n in (1, 2):
        clearing.had(n, _id(n), 0.0)
    assert clearing.opened({identity_of_id(_id(2))}) == [1]
    assert clearing.due(0.0, 9) == [_id(2)]


@given(st.lists(st.integers(0, 50), unique=True), st.sets(st.integers(0, 50)))
def test_every_dismissal_is_either_heard_or_sent_again(
    came: list[int], announced: set[int]
) -> None:
    clearing = Clearing(most_kept=3)
    dismissed = {n for each in came if (n := clearing.had(each, _id(each), 0.0)) is not None}
    clearing.due(0.0, 99)
    heard = {n for each in announced if (n := _heard(clearing, each)) is not None}
    assert heard == dismissed & announced
    assert set(clearing.due(99.0, 99)) == {_id(n) for n in dismissed - announced}
