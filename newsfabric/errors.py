"""The errors of newsfabric, by the party at fault.

::

    NewsfabricError
    ├── SetupError            this machine lacks a requirement; the text names the remedy
    ├── ConfigError           topics.toml, fabric.json or an option is wrong; the text says where
    ├── BadToken              a reader's token isn't good (``reason``, one of tokens.REASONS)
    ├── PublishError          a message could not be published
    │   ├── Rejected          it can't be accepted (``reason``, ``detail``)
    │   ├── Returned          no region has a queue for it: every broker asked returned it
    │   ├── AccessRefused     every broker refuses the publisher: waiting won't help
    │   └── Unanswered        no reply in time; its fate is unknown (``message_id``, ``sent``)
    ├── ReaderError           a reader's verb is refused (``code``, ``reason``, ``temporary``)
    ├── Disconnected          a gateway ended a reader's connection, or it broke
    ├── LinkError             an AMQP link failed; reconnect and send again
    │   ├── LinkClosed        it closed during the operation
    │   ├── LinkRefused       the broker refuses us, or can't be trusted: waiting won't help
    │   ├── PublishNacked     the broker refused the message
    │   │   └── PublishReturned   it returned the message: no queue is bound for it
    │   └── LinkBusy          too many publications are in flight; slow down
    ├── ManagementError       a broker's management API replied with an error or not at all
    ├── StoreError            the store can't answer
    │   └── StoreUnavailable  for now; retry
    ├── WorldError            the world on this machine can't be started or found
    └── TraceError            no message to trace, or several; the text has the candidates

Each carries one line for a person. Library errors (pika, sqlite3, tornado) are
wrapped where they are caught and kept as ``__cause__``, so that no code above the
adapters imports a driver to catch its errors.
"""

from __future__ import annotations


class NewsfabricError(Exception):
    """Base of every error that newsfabric raises on purpose."""


class SetupError(NewsfabricError):
    """A requirement is missing on this machine; the text names the remedy."""


class ConfigError(NewsfabricError):
    """A file or option is wrong; the text names the place and the remedy."""


class PublishError(NewsfabricError):
    """A message could not be published, or its fate is unknown."""


class Rejected(PublishError):
    """A publisher's message can't be accepted. A retry won't help.

    ``reason`` is one word from :data:`newsfabric.messages.envelope.REJECT_REASONS`, fit for a
    metric's label; ``detail`` is for the publisher.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


class BadToken(NewsfabricError):
    """A token that is no valid login. The text has the reason, and never the token.

    ``reason`` is one word from :data:`newsfabric.tokens.REASONS`, fit for a metric's label.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class Returned(PublishError):
    """Brokers took the message and returned it: no queue of the fabric is bound there."""


class AccessRefused(PublishError):
    """The message was not sent, and waiting won't help.

    Every broker refuses the login, the virtual host or the queue for receipts, or has a certificate
    that can't be trusted.
    """


class Unanswered(PublishError):
    """No receipt or confirm in time: the message may have been routed, unless ``sent`` is False.

    Publish it again with this ``message_id``, and readers receive it once. ``trouble`` is the
    reason why there is no connection, or why it was closed; empty if unknown.
    """

    def __init__(
        self, message_id: str, seconds: float, trouble: str = "", *, sent: bool = True
    ) -> None:
        what = "the message may have been routed nevertheless" if sent else "nothing was sent"
        super().__init__(
            f"no answer within {seconds:g} s; {what}: "
            f"publish it again with message_id {message_id!r}"
            + (f" ({trouble})" if trouble else "")
        )
        self.message_id = message_id
        self.sent = sent
        self.trouble = trouble


class ReaderError(NewsfabricError):
    """A reader's verb is refused; becomes an ``error`` push.

    ``code`` is one of :class:`newsfabric.closing.ErrorCode`. ``temporary`` means that the same verb
    may work later.
    """

    def __init__(self, code: int, reason: str, *, temporary: bool = False) -> None:
        super().__init__(f"{code}: {reason}")
        self.code = code
        self.reason = reason
        self.temporary = temporary


class Disconnected(NewsfabricError):
    """A reader's connection has ended. ``code`` is the close code, 1006 if there was none.

    Connect again, to any gateway, unless ``reconnect`` is False.
    """

    def __init__(self, code: int, reason: str, *, reconnect: bool = True) -> None:
        super().__init__(f"{code}: {reason}")
        self.code = code
        self.reason = reason
        self.reconnect = reconnect


class LinkError(NewsfabricError):
    """An AMQP operation failed because of its link."""


class LinkClosed(LinkError):
    """The link closed before the operation was known to have succeeded: send again."""


class LinkRefused(LinkError):
    """The broker refuses our login or request, or its certificate can't be trusted.

    Waiting won't help; a person may.
    """


class PublishNacked(LinkError):
    """The broker refused the message (``basic.nack``), or returned it (see below)."""


class PublishReturned(PublishNacked):
    """The broker returned a mandatory message (``basic.return``): no queue is bound for it."""


class LinkBusy(LinkError):
    """The bounded number of unconfirmed publications is reached: wait, then continue."""


class ManagementError(NewsfabricError):
    """A broker's management API replied with an error or not at all.

    ``status`` is the HTTP status, 0 without a reply.
    """

    def __init__(self, message: str, *, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class StoreError(NewsfabricError):
    """The store refused or failed; the text names the operation."""


class StoreUnavailable(StoreError):
    """The store can't be reached now: keep the message and retry."""


class WorldError(NewsfabricError):
    """The world can't be started, found or stopped; the text is the whole message."""


class TraceError(NewsfabricError):
    """There is no message to trace, or there are several; the text has the candidates."""
