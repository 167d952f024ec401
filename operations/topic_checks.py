"""Checks of a valid topics.toml for entries that no topic ever uses. Pure.

The first entry that matches wins. So an entry whose topics earlier entries match is dead, and its
class or access has no effect. In the check one word that is in no pattern represents all such
words: only wildcards match it, so a pattern that matches it matches every word.
"""

from __future__ import annotations

import dataclasses
import difflib
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from newsfabric.topics import TopicPolicy, TopicTable, matches

_Words = tuple[str, ...]
# Positions in several patterns at once: the pattern's number, and its words matched so far.
_Places = frozenset[tuple[int, int]]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """An entry without effect. ``where`` names it as an error of topics.toml would.

    ``kind`` is ``double`` (an earlier entry has the same pattern), ``covered`` (earlier entries
    match all its topics) or ``unreachable`` (a publisher's pattern that no entry's topics match).
    """

    where: str
    pattern: str
    kind: str
    detail: str


def findings(table: TopicTable) -> list[Finding]:
    """Return all findings of ``table``, in its order; empty if every pattern has an effect."""
    return [*_of_entries(table), *_of_publishers(table)]


def covers(general: Sequence[str], special: str) -> bool:
    """Return whether every topic that ``special`` matches is matched by one of ``general``."""
    patterns = [_words(pattern) for pattern in general]
    words = _words(special)
    todo = [(0, _closed(frozenset((n, 0) for n in range(len(patterns))), patterns), False)]
    seen = set(todo)
    while todo:
        at, places, has_words = todo.pop()
        if at == len(words):
            # A topic has at least one word.
            if has_words and not any(place == len(patterns[n]) for n, place in places):
                return False
            continue
        word = words[at]
        nexts = [(at + (word != "#"), _after(places, word, patterns), True)]
        if word == "#":
            nexts.append((at + 1, places, has_words))
        todo += [state for state in nexts if state not in seen]
        seen.update(nexts)
    return True


def meet(one: str, other: str) -> bool:
    """Return whether there is a topic that both patterns match."""
    first, second = _words(one), _words(other)
    todo, seen = [(0, 0)], {(0, 0)}
    while todo:
        at, beside = todo.pop()
        if (at, beside) == (len(first), len(second)):
            return True
        nexts = set()
        mine = first[at] if at < len(first) else None
        theirs = second[beside] if beside < len(second) else None
        if mine == "#":
            nexts |= {(at + 1, beside)} | ({(at, beside + 1)} if theirs is not None else set())
        if theirs == "#":
            nexts |= {(at, beside + 1)} | ({(at + 1, beside)} if mine is not None else set())
        if mine is not None and theirs is not None and (mine == theirs or "*" in (mine, theirs)):
            nexts.add((at + 1, beside + 1))
        todo += [state for state in nexts if state not in seen]
        seen |= nexts
    return False


def match(table: TopicTable, topic: str) -> dict[str, Any]:
    """Return the document of ``newsfabric topics match``; releases add keys, and never change any.

    ``entry`` counts from 1, as errors of topics.toml do; it and the entry's fields are None if no
    entry matches. ``publishers`` may publish to it; None: all publishers may. ``like`` are patterns
    without wildcards of other entries with a similar spelling.
    """
    policy = table.find(topic)
    policy_document = _policy_document(policy)
    publishers = [each.app_id for each in table.publishers if table.may_publish(each.app_id, topic)]
    return {
        "topic": topic,
        "entry": None if policy is None else table.policies.index(policy) + 1,
        **policy_document,
        "also": [
            {"entry": number, "pattern": other.pattern}
            for number, other in enumerate(table.policies, 1)
            if policy is not None and other is not policy and matches(other.pattern, topic)
        ],
        "publishers": publishers if table.publishers else None,
        "like": _like(table, topic, policy),
    }


def _policy_document(policy: TopicPolicy | None) -> dict[str, Any]:
    names = ("pattern", "topic_class", "access", "keep", "ttl", "slow", "latest")
    found = {name: None if policy is None else getattr(policy, name) for name in names}
    return {{"topic_class": "class"}.get(name, name): value for name, value in found.items()}


def _like(table: TopicTable, topic: str, policy: TopicPolicy | None) -> list[dict[str, Any]]:
    named = {
        other.pattern: {"topic": other.pattern, "entry": n, "class": other.topic_class}
        for n, other in enumerate(table.policies, 1)
        if other is not policy and not {"*", "#"} & set(_words(other.pattern))
    }
    return [named[name] for name in difflib.get_close_matches(topic, named, n=3, cutoff=0.8)]


def _of_entries(table: TopicTable) -> Iterator[Finding]:
    for number, policy in enumerate(table.policies, 1):
        earlier = list(enumerate(table.policies[: number - 1], 1))
        where = f"topic {number} ({policy.pattern})"
        by = next((each for each in earlier if covers([each[1].pattern], policy.pattern)), None)
        if by is not None:
            kind = "double" if by[1].pattern == policy.pattern else "covered"
            why = "has the same pattern" if kind == "double" else "matches all its topics"
            detail = f"never used: topic {by[0]} ({by[1].pattern}) comes first and {why}"
            yield Finding(where=where, pattern=policy.pattern, kind=kind, detail=detail)
        elif covers([other.pattern for _, other in earlier], policy.pattern):
            some = [(n, each) for n, each in earlier if meet(each.pattern, policy.pattern)]
            names = ", ".join(f"{n} ({each.pattern})" for n, each in some)
            detail = f"never used: topics {names} come first and together match all its topics"
            yield Finding(where=where, pattern=policy.pattern, kind="covered", detail=detail)


def _of_publishers(table: TopicTable) -> Iterator[Finding]:
    for number, rights in enumerate(table.publishers, 1):
        where = f"publisher {number} ({rights.app_id})"
        for at, pattern in enumerate(rights.topics):
            by = [other for other in rights.topics[:at] if covers([other], pattern)]
            if by:
                kind = "double" if pattern in by else "covered"
                detail = f"{pattern} adds nothing to {by[0]} before it"
                yield Finding(where=where, pattern=pattern, kind=kind, detail=detail)
            elif not any(meet(policy.pattern, pattern) for policy in table.policies):
                detail = f"{pattern} matches no topic of any [[topic]]"
                yield Finding(where=where, pattern=pattern, kind="unreachable", detail=detail)


def _words(pattern: str) -> _Words:
    return tuple(pattern.split("."))


def _after(places: _Places, word: str, patterns: Sequence[_Words]) -> _Places:
    """Return the positions after one more word: ``word``, or any word, if that is a wildcard."""
    found = set()
    for number, place in places:
        mine = patterns[number][place] if place < len(patterns[number]) else None
        if mine == "#":
            found.add((number, place))
        elif mine == "*" or (mine is not None and mine == word):
            found.add((number, place + 1))
    return _closed(frozenset(found), patterns)


def _closed(places: _Places, patterns: Sequence[_Words]) -> _Places:
    """Return ``places`` with the positions to which an empty ``#`` leads."""
    found = set(places)
    for number, place in places:
        hashes = itertools.takewhile(lambda word: word == "#", patterns[number][place:])
        found |= {(number, place + n) for n, _ in enumerate(hashes, 1)}
    return frozenset(found)
