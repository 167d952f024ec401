"""The SockJS suite: what the protocol (1.0) asks for, as dialogues with a server.

Every case holds for our gateway and for sockjs-node alike. Where they may differ, a case
doesn't assert: it only has the answer noted, and ``sockjs_differences`` says why it is another one.
"""

from __future__ import annotations

# Each takes its functions into CASES.
import sockjs_http_cases  # noqa: F401
import sockjs_websocket_cases  # noqa: F401
from sockjs_suite import CASES, Case

__all__ = ["CASES", "Case"]
