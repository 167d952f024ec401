"""Transports of this process: WebSocket, SSE, SockJS, and pages of ``/history``."""
