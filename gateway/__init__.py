"""The gateway of a retail box: the process that readers connect to, by ``python -m gateway``.

These modules are pure, without sockets or clocks: access, hub, kept_topics, memory, forgotten,
recalled, windows, bounded, identities, runs, known_log, logs, log_times, unlisted. So are reading,
position, outbox, protocol, frames, publication, rfc6455, bodies, the rules of late and the pace of
drain.

Both engines use the other modules: core joins the parts; feed consumes messages, broadcast sends
them, desk answers verbs. connection, fanout, websocket, sse and sockjs serve this process's own
readers. The interface ``engine`` covers the differences. gateway.native is the Python side of the
native engine, whose data plane owns its readers' sockets.
"""
