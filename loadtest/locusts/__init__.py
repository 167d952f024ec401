"""A load test of a whole fabric with locust: ``make loadtest``, ``python -m loadtest.locusts``.

``options``, ``shapes``, ``books`` and ``sheet`` are pure: what a run is to do, how many readers and
messages when, what each reader was owed, and what the report says. ``wire``, ``publishers``,
``users`` and ``hooks`` run inside locust, which brings gevent and lives in a virtual environment of
its own: they import nothing of ``newsfabric``. ``__main__`` makes a world and starts locust.
"""
