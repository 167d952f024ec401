"""Readers' bytes: verbs, frames, positions, and outboxes of frames that wait. Pure."""
