"""The parts of sockjs-tornado 1.0.7 that are used: no other module imports the library.

Its faults are corrected in subclasses of its classes (:mod:`gateway.transports.sockjs`).
"""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    # The library decorates handlers with a function that warns, and a pattern has a bad escape.
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
