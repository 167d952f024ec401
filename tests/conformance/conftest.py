"""Set-up shared by the conformance tests."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

# ``python tests/conformance/…`` finds the suites' modules in this folder too.
sys.path.insert(0, str(Path(__file__).parent))
pytest.register_assert_rewrite("sockjs_suite", "sockjs_http_cases", "sockjs_websocket_cases")
