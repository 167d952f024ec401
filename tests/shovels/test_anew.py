"""Keepers of two releases that want other bounds for one queue."""

from __future__ import annotations

from fabrics import broker

from newsfabric.topology import Queue
from newsfabric.topology.values import Bounds
from shovels.anew import PAUSE, MadeAnew
from shovels.apply import TriedAction
from shovels.plan import Action, Verb

CLIENT = broker("oregon-client-1")


def makes(name: str = "shovel.publish.oregon.1", verb: Verb = "update") -> Action:
    bounds = Bounds(max_length=10, max_bytes=1_000)
    return Action(CLIENT, verb, "queue", name, Queue(name, bounds))


def test_a_queue_is_made_anew_once_in_ten_minutes():
    anew = MadeAnew()
    assert anew.may([makes()], 0.0) == (makes(),)
    anew.did([TriedAction(makes())], 0.0)
    assert anew.may([makes()], PAUSE - 1) == ()
    assert anew.may([makes()], PAUSE) == (makes(),)


def test_other_queues_and_steps_dont_wait_for_it():
    anew = MadeAnew()
    anew.did([TriedAction(makes()), TriedAction(makes("b", "create"))], 0.0)
    others = (makes("b"), makes(verb="create"), makes(verb="delete"))
    assert anew.may([makes(), *others], 1.0) == others


def test_what_failed_is_tried_again():
    anew = MadeAnew()
    anew.did([TriedAction(makes(), "no answer")], 0.0)
    assert anew.may([makes()], 1.0) == (makes(),)


def test_two_releases_end_what_they_do_by_turns():
    """The keeper of the second host is upgraded at 300 s. Each keeper looks every 5 s."""
    hosts = [("new", MadeAnew()), ("old", MadeAnew())]
    bounds, made = "old", []
    for now in range(0, 1_200, 5):
        if now == 300:
            hosts[1] = ("new", MadeAnew())
        for wanted, keeper in hosts:
            actions = [makes()] if bounds != wanted else []
            if todo := keeper.may(actions, float(now)):
                keeper.did(map(TriedAction, todo), float(now))
                bounds = wanted
                made.append((now, wanted))
    assert made == [(0, "new"), (0, "old"), (300, "new")]


def test_what_waits_is_named_and_nothing_else():
    anew = MadeAnew()
    others = (makes("b"), makes(verb="create"), makes(verb="delete"))
    assert anew.waiting([makes(), *others], 0.0) == []
    anew.did([TriedAction(makes())], 0.0)
    assert anew.waiting([makes(), *others], PAUSE - 1) == [(CLIENT, makes().name)]
    assert anew.waiting([makes()], PAUSE) == []
