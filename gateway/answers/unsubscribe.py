"""The verb ``unsubscribe``."""

from __future__ import annotations

import dataclasses

from gateway.answers.verb import Port, Verb, VerbContext
from gateway.wire.frames import encode_push


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Unsubscribe(Verb):
    """The end of the subscription to ``topic``."""

    def answer(self, context: VerbContext, reader: Port) -> None:
        """Answer with ``unsubscribed``, also if the reader wasn't subscribed."""
        push = encode_push("unsubscribed", ref=self.ref, topic=self.topic)
        reader.unsubscribe(self.topic, push)
