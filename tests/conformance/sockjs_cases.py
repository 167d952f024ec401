"""The SockJS suite: the requirements of the protocol (1.0), as dialogues with a server.

Each case holds for our gateway and for sockjs-node alike. Where they may differ, a case doesn't
assert: it only notes the reply, and ``sockjs_differences`` has the reason for the difference.
"""

from __future__ import annotations

# Each module adds its functions to CASES.
import sockjs_http_cases  # noqa: F401
import sockjs_websocket_cases  # noqa: F401
from sockjs_suite import CASES, Case

__all__ = ["CASES", "Case"]
