"""An executable model of the design "every router is a log" (docs/design/0028).

``python -m logmodel --help`` runs it. One seed is one history: routers, gateways and readers
of two or three regions live through some hundred mishaps in virtual time. Then everything is
healed, and the invariants L1 to L5 are checked.

It has three layers; each imports only the layers listed above it:

- **Rules**, pure, without randomness; time is an argument: ``numbering`` (a router's numbers, low
  and lease), ``directory`` (conditional writes), ``closing``, ``positions``, ``memory``, ``late``
  and ``resuming``; of the project, ``gateway.logs`` and its parts. ``parts`` lists them. The
  project's code can replace each of them.
- **World**, simulated: ``world`` and ``stores``, ``brokers``, ``router``, ``gateway``, ``readers``,
  ``publishers``, ``mishaps``.
- **Checks**: ``book`` records the true events, ``checks`` compares.

``mutations`` names the faults that can be put in. A fault is a subclass of one rule, so that no
rule contains code for faults.
"""
