"""A retail box's gateway: the process that readers connect to. Run it with ``python -m gateway``.

Pure, without sockets or clocks: hub, memory, identities, streams, position, outbox, protocol,
frames, publication, rfc6455, and the pace of drain. They are what another engine is held to.
The rest is the Tornado engine around them: core joins the parts; feed brings messages
in, fanout sends them, desk obeys readers; websocket, sse and sockjs are the transports.
gateway.native is the other engine's Python side; its readers' sockets are in the data plane.
"""
