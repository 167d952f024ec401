"""Keepers of two releases that want other bounds for one queue."""

from __future__ import annotations

from fabrics import broker

from newsfabric.topology import Queue
from newsfabric.topology.values import Bounds
from shovels.apply import TriedAction
from shovels.plan import Action, Verb
from shovels.replaced_queues import PAUSE, ReplacedQueues

CLIENT = broker("oregon-client-1")


def makes(name: str = "shovel.publish.oregon.1", verb: Verb = "update") -> Action:
    bounds = Bounds(max_length=10, max_bytes=1_000)
    return Action(CLIENT, verb, "queue", name, Queue(name, bounds))


def test_a_queue_is_replaced_once_in_ten_minutes():
    replaced = ReplacedQueues()
    assert replaced.may([makes()], 0.0) == (makes(),)
    replaced.did([TriedAction(makes())], 0.0)
    assert replaced.may([makes()], PAUSE - 1) == ()
    assert replaced.may([makes()], PAUSE) == (makes(),)


def test_other_queues_and_steps_dont_wait_for_it():
    replaced = ReplacedQueues()
    replaced.did([TriedAction(makes()), TriedAction(makes("b", "create"))], 0.0)
    others = (makes("b"), makes(verb="create"), makes(verb="delete"))
    assert replaced.may([makes(), *others], 1.0) == others


def test_what_failed_is_tried_again():
    replaced = ReplacedQueues()
    replaced.did([TriedAction(makes(), "no answer")], 0.0)
    assert replaced.may([makes()], 1.0) == (makes(),)


def test_two_releases_end_what_they_do_by_turns():
    """The keeper of the second host is upgraded at 300 s. Each keeper looks every 5 s."""
    hosts = [("new", ReplacedQueues()), ("old", ReplacedQueues())]
    bounds, made = "old", []
    for now in range(0, 1_200, 5):
        if now == 300:
            hosts[1] = ("new", ReplacedQueues())
        for wanted, keeper in hosts:
            actions = [makes()] if bounds != wanted else []
            if todo := keeper.may(actions, float(now)):
                keeper.did(map(TriedAction, todo), float(now))
                bounds = wanted
                made.append((now, wanted))
    assert made == [(0, "new"), (0, "old"), (300, "new")]


def test_what_waits_is_named_and_nothing_else():
    replaced = ReplacedQueues()
    others = (makes("b"), makes(verb="create"), makes(verb="delete"))
    assert replaced.waiting([makes(), *others], 0.0) == []
    replaced.did([TriedAction(makes())], 0.0)
    assert replaced.waiting([makes(), *others], PAUSE - 1) == [(CLIENT, makes().name)]
    assert replaced.waiting([makes()], PAUSE) == []
