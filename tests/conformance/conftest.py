"""What conformance tests share."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

# The suites' modules are found here by ``python tests/conformance/…`` too.
sys.path.insert(0, str(Path(__file__).parent))
pytest.register_assert_rewrite("sockjs_suite", "sockjs_http_cases", "sockjs_websocket_cases")
