"""Who may read which topic: policy and login in, a refusal or nothing out. Pure.

Asked for each verb when its turn comes, on each engine and transport. A topic that isn't
well-formed has no policy in the first place.
"""

from __future__ import annotations

from gateway.protocol import History, Refusal, SetMark, Subscribe
from newsfabric.closing import ErrorCode
from newsfabric.tokens import Login
from newsfabric.topics import TopicPolicy, matches, owner_of


def may_read(topic: str, policy: TopicPolicy, login: Login | None) -> bool:
    """Whether a reader with ``login`` may read ``topic``, whose policy this is.

    The patterns in a token never open another user's topic.
    """
    if policy.access == "public":
        return True
    if login is None:
        return False
    if policy.access == "owner":
        return owner_of(topic) == login.user
    return policy.access == "registered" or any(matches(one, topic) for one in login.topics)


def refusal(
    verb: Subscribe | History | SetMark, policy: TopicPolicy, login: Login | None
) -> Refusal | None:
    """Why a reader with ``login`` can't have ``verb``; None if it can."""
    if may_read(verb.topic, policy, login):
        return None
    if login is None:
        code, reason = ErrorCode.UNAUTHORIZED, "log in to read this topic"
    else:
        code, reason = ErrorCode.PERMISSION_DENIED, "this topic isn't yours to read"
    return Refusal(code=code, reason=reason, topic=verb.topic, ref=verb.ref)
