"""Publishes one headline and prints its identity: python example.py REGION … (nearest first)."""

import sys

from newsfabric.publish import Publisher, Rejected

with Publisher(sys.argv[1:], app_id="cms") as publisher:
    try:
        published = publisher.publish(
            "news.breaking", {"headline": "Comet seen over the bay"}, key="comet", version=1
        )
        print(published.identity)  # noqa: T201
    except Rejected as error:
        sys.exit(f"it can't be accepted: {error}")
