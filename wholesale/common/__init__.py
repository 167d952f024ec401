"""Shared parts of the core's services: queues, pages, publishing, a drain."""
