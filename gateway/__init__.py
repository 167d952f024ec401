"""A retail box's gateway: the process that readers connect to. Run it with ``python -m gateway``.

Pure, without sockets or clocks: access, hub, kept_topics, memory, forgotten, recalled, windows,
bounded, identities, runs, known_log, logs, reading, position, outbox, protocol, frames,
publication, rfc6455, bodies, the rules of late and the pace of drain.

Both engines have the rest: core joins the parts; feed brings messages in, broadcast sends them,
desk answers verbs. connection, fanout, websocket, sse and sockjs serve the readers of this process.
What differs is behind ``engine``: gateway.native is the other engine's Python side, whose readers'
sockets are in the data plane.
"""
