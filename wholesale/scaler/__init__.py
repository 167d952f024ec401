"""The scaler: how many boxes a region needs, which leave, and a driver that makes it so.

``wish`` says how many, from a few numbers; ``known_boxes`` keeps those numbers from load reports;
``choice`` says which boxes go; ``brain`` puts them together. All four are pure. ``service`` and
``acting`` do what they say. docs/design/0026-the-scaler.md says why it is so.
"""
