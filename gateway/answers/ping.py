"""The verb ``ping``."""

from __future__ import annotations

import dataclasses
from typing import Self

from gateway.answers.verb import Port, Verb, VerbContext
from gateway.wire.fields import VerbFields
from gateway.wire.frames import encode_push
from gateway.wire.protocol import ReaderLimits


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Ping(Verb):
    """A request for ``pong``, with these ``limits`` of the reader if it asks for them."""

    limits: ReaderLimits | None = None

    @classmethod
    def parse(cls, fields: VerbFields) -> Self:
        """See :meth:`.Verb.parse`."""
        wants_limits = fields.values.get("limits") is True
        return cls(limits=fields.limits if wants_limits else None, ref=fields.ref)

    def answer(self, context: VerbContext, reader: Port) -> None:
        """Answer with ``pong``."""
        limits = None if self.limits is None else self.limits.public
        reader.push(encode_push("pong", ref=self.ref, limits=limits))
