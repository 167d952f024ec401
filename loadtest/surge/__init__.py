"""A surge of readers into a world that grows: ``make surge``, ``python -m loadtest.surge``.

``figures`` is pure and evaluates a run; ``crowd`` and ``run`` carry it out.
"""
