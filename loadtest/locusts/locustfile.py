"""The file for locust: ``locust -f loadtest/locusts/locustfile.py``. See docs/loadtest.md."""

from __future__ import annotations

import sys
from pathlib import Path

# Locust's environment contains locust; the load test is in this checkout.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from loadtest.locusts.dense import DenseReaders
from loadtest.locusts.hooks import Shape
from loadtest.locusts.publishers import AmqpPublisher, HttpPublisher
from loadtest.locusts.users import (
    AnonymousReader,
    FallbackReader,
    RegisteredReader,
    RoamingReader,
    SlowReader,
)

__all__ = [
    "AmqpPublisher",
    "AnonymousReader",
    "DenseReaders",
    "FallbackReader",
    "HttpPublisher",
    "RegisteredReader",
    "RoamingReader",
    "Shape",
    "SlowReader",
]
