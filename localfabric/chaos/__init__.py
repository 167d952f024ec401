"""Chaos: breaks a world on a seeded schedule and accounts for every message meanwhile.

``schedule`` decides the faults and their times, ``delivery_record`` judges the deliveries (both
pure); ``publishing`` has the publishers, ``reading``, ``devices`` and ``crowd`` the readers;
``run`` connects them, ``report`` and ``plot`` write results (docs/chaos.md explains them).
"""
