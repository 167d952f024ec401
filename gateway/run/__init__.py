"""Whole gateways, one for each engine, and their admin port."""
