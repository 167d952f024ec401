"""Brokers and stores without a world, for tests and benches. Not part of any wheel."""
