"""Reads of messages that are past: for readers, and of a late message's copies."""
