"""A load test of a whole fabric with locust: ``make loadtest``, ``python -m loadtest.locusts``.

``options``, ``shapes`` and ``report`` are pure: what a run is to do, how many readers and messages
when, and what the report says; so is ``loadtest.records``, what each reader was owed. ``wire``,
``publishers``, ``users``, ``dense`` and ``hooks`` run inside locust, which brings gevent and lives
in a virtual environment of its own: they import nothing of ``newsfabric``. ``__main__`` makes a
world and starts locust.
"""
