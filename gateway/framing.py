"""Who may put our pages into a frame. Pure.

SockJS's iframe page does what the page around it says, in our own host's name: it logs in with the
reader's cookie, and hands back what it reads. So who may not connect may not frame it either.

The decision that one would question: without a list of origins and without a cookie anybody may.
Every page may connect then, and in our name it gets no more than in its own.
"""

from __future__ import annotations

from gateway.settings import ANY_ORIGIN, GatewaySettings


def is_guarded(settings: GatewaySettings) -> bool:
    """Whether there is something here that not every page may have."""
    return settings.origins != ANY_ORIGIN or settings.tokens.cookie is not None


def may_be_framed(settings: GatewaySettings) -> bool:
    """Whether pages of other origins may frame ours. With a cookie only those that are listed."""
    return settings.origins != ANY_ORIGIN or settings.tokens.cookie is None


def content_policy(settings: GatewaySettings) -> str | None:
    """The ``Content-Security-Policy`` of pages that are made to be framed; None: frame it freely.

    All pages around are checked, so our own is always among them.
    """
    if not is_guarded(settings):
        return None
    listed = () if settings.origins == ANY_ORIGIN else settings.origins
    return " ".join(("frame-ancestors 'self'", *listed))
