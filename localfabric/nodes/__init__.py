"""Brokers and stores without a world, for tests and benches. No wheel has them."""
