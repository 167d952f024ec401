"""The gateway of a retail box: the process that readers connect to, by ``python -m gateway``.

A message comes in through ``feed``, is noted in ``logs`` and in ``memory``, and goes out to the
readers of each process. A reader comes in through ``transports`` and ``readers``; its verbs are
parsed and answered in ``answers``, with messages of ``past``. ``core`` joins these parts, ``run``
makes whole gateways of them. Each of the folders imports only those before it in this list: wire,
logs, memory, process, past, answers, feed, readers, core, transports, native, run.

Pure, without sockets or clocks, are wire, logs and memory, and of the others access, bodies,
bounded, replay, the rules of late, and the pace of drain.

Both engines use the other modules; only this process's own readers need transports, connection and
fanout. The interface :class:`~gateway.feed.engine.Engine` covers the differences.
:mod:`gateway.native` is the Python side of the native engine, whose data plane owns its readers'
sockets.
"""
