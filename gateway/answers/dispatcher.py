"""The dispatcher of verbs: has each verb of a reader answered, the same on both engines.

Answers are made from the hub's memory, and from the store for older messages. The dispatcher
keeps no state of a reader.

The store may fail. A subscribe then continues with the messages in memory, since new messages
matter more than old ones. A history, and a mailbox, are refused with a temporary error.
"""

from __future__ import annotations

from gateway.answers.access import refusal
from gateway.answers.verb import Pending, Port, Verb, VerbContext, refuse
from gateway.answers.verbs import BY_VERB, Intent, Topic
from gateway.process import measures
from gateway.wire.protocol import VerbRefusal
from newsfabric.closing import ErrorCode
from newsfabric.errors import LinkError, StoreError


class VerbDispatcher(VerbContext):
    """The decisions, one verb at a time for each reader."""

    def decide(self, reader: Port, intent: Intent) -> Pending | None:
        """Answer ``intent`` now, or return a coroutine to await before the reader's next one."""
        if isinstance(intent, VerbRefusal):
            refuse(reader, intent)
            return None
        row = BY_VERB[type(intent)]
        measures.VERBS.labels(row.label).inc(reader.reader_count)
        denied = self._denied(reader, intent, row.topic)
        if denied is not None:
            refuse(reader, denied, intent)
            return None
        pending = intent.answer(self, reader)
        return None if pending is None else _unless_away(reader, intent, pending)

    def _denied(self, reader: Port, verb: Verb, topic: Topic) -> VerbRefusal | None:
        if topic == "past" and not self.can_serve():
            # Verbs of readers that the data plane had before this process started.
            return _not_now(verb, "the gateway is starting")
        if topic in ("readable", "past"):
            policy = self.table.known(verb.topic)
            if policy.access != "public":
                return refusal(verb.topic, policy, reader.auth.login)
        return None


async def _unless_away(reader: Port, verb: Verb, pending: Pending) -> None:
    try:
        await pending
    except StoreError:
        refuse(reader, _not_now(verb, "the store is away"), verb)
    except LinkError:
        refuse(reader, _not_now(verb, "marks can't be sent now"), verb)


def _not_now(verb: Verb, reason: str) -> VerbRefusal:
    return VerbRefusal(code=ErrorCode.INTERNAL, reason=reason, temporary=True, topic=verb.topic)
