"""A load test of a whole fabric with locust: ``make loadtest``, ``python -m loadtest.locusts``.

``options``, ``shapes`` and ``report`` are pure: the options of a run, the numbers of readers and
messages over time, and the report. ``loadtest.records``, also pure, has the deliveries owed to each
reader. ``wire``, ``publishers``, ``users``, ``dense`` and ``hooks`` run inside locust, which uses
gevent and has a virtual environment of its own: they import nothing of ``newsfabric``. ``__main__``
starts a world and locust.
"""
