"""Chaos: break a world on a seeded schedule and account for every message meanwhile.

``schedule`` decides what breaks when, ``books`` judge what arrived (both pure); ``publishing`` and
``reading`` are the publishers and the readers, ``run`` ties them together, ``report`` and
``plot`` tell a person. docs/chaos.md says how to read what comes out.
"""
