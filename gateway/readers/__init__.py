"""Readers of this process, whatever their transport: who is let in, connections, bounds."""
