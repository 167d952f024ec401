"""The scaler: the number of boxes that a region needs, the boxes to remove, and a driver to do it.

``requirement`` computes the number, from a few figures; ``known_boxes`` keeps those figures from
load reports; ``choice`` chooses the boxes to remove; ``deciding`` combines the three. All four are
pure. ``service`` and ``acting`` do the I/O. docs/design/0026-the-scaler.md has the reasons.
"""
