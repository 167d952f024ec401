"""A surge of readers into a world that grows: ``make surge``, ``python -m loadtest.surge``.

``figures`` is pure and decides what a run has shown; ``crowd`` and ``run`` make it happen.
"""
