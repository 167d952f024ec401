"""Boxes and other processes of the region, by their reports alone. Pure."""
