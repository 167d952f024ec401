"""Chaos: break a world on a seeded schedule and account for every message meanwhile.

``schedule`` decides what breaks when, ``delivery_record`` judges what arrived (both pure);
``publishing`` is the publishers, ``reading``, ``devices`` and ``crowd`` the readers, ``run`` ties
them together, ``report`` and ``plot`` tell a person. docs/chaos.md says how to read what comes out.
"""
