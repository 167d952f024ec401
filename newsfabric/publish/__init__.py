"""A library for Python programs that publish, asynchronous and synchronous.

::

    from newsfabric.publish import Publisher

    with Publisher(["amqp://cms:secret@127.0.0.1:18110/%2F"], app_id="cms") as publisher:
        published = publisher.publish("news.breaking", {"headline": "Hello"}, key="story-1")
        print(published.identity)

``publish`` returns when the message is stored and routed (a receipt), or, with ``receipt=False``,
when a broker has it. Until then it sends the message again with the same ``message_id``, through
the next broker of the region and then through the next region. If a retry can't help it raises:
:class:`~newsfabric.errors.Rejected`, :class:`~newsfabric.errors.Returned`,
:class:`~newsfabric.errors.AccessRefused`, :class:`~newsfabric.errors.Unanswered`.

The libraries for Java and PHP (``clients/``) have the same names, defaults and errors. The AMQP
messages are described in docs/publishing.md; any AMQP library can publish them.
"""

from newsfabric.errors import AccessRefused, PublishError, Rejected, Returned, Unanswered
from newsfabric.publish.asynchronous import AsyncPublisher
from newsfabric.publish.message import Options, Published
from newsfabric.publish.synchronous import Publisher

__all__ = [
    "AccessRefused",
    "AsyncPublisher",
    "Options",
    "PublishError",
    "Published",
    "Publisher",
    "Rejected",
    "Returned",
    "Unanswered",
]
