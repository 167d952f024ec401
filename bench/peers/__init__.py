"""The gateway beside the software that people would otherwise choose: ``make bench-peers``.

Every peer is a server on a core of its own, with the same crowd of readers on the others
(``newsfabric-crowd``, over WebSocket or Server-Sent Events). Peers take turns, round after round,
with a bare loop of ``send()`` calls (the floor) among them: a slower processor is then slower for
all. Figures are medians of the rounds; a ratio is to the floor of the same round.

``catalogue`` lists the peers, ``servers`` starts them, ``play`` measures, ``report`` writes.
``programs/`` holds the peers' own programs.
"""
