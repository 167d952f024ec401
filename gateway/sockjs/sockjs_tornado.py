"""What we use of sockjs-tornado 1.0.7: the only module that imports it.

Its faults are mended where its classes are subclassed (:mod:`gateway.sockjs`).
"""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    # It decorates its handlers with a function that warns, and has a stray escape in a pattern.
    warnings.simplefilter("ignore")
    from sockjs.tornado import SockJSRouter
    from sockjs.tornado.basehandler import BaseHandler, PreflightHandler
    from sockjs.tornado.sessioncontainer import SessionMixin
    from sockjs.tornado.transports.htmlfile import HTMLFILE_HEAD
    from sockjs.tornado.transports.pollingbase import PollingTransportBase
    from sockjs.tornado.transports.streamingbase import StreamingTransportBase

__all__ = [
    "HTMLFILE_HEAD",
    "BaseHandler",
    "PollingTransportBase",
    "PreflightHandler",
    "SessionMixin",
    "SockJSRouter",
    "StreamingTransportBase",
]
