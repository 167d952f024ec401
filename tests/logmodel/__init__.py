"""An executable model of the design "every router is a log" (docs/design/0028).

``python -m tests.logmodel --help`` runs it. One seed is one history: routers, gateways and readers
of two or three regions live through some hundred mishaps in virtual time; then everything is
healed, and the invariants L1 to L5 are checked.

Three layers, each of which imports only what stands above it:

- **Rules**, pure, without randomness; time is an argument: ``numbering`` (a router's numbers, low
  and lease), ``directory`` (conditional writes), ``closing``, ``known`` (what a gateway knows of a
  log), ``positions``, ``memory``, ``late`` and ``resuming``. ``parts`` lists them. The project's
  code can take the place of each.
- **World**, simulated: ``world`` and ``stores``, ``brokers``, ``router``, ``gateway``, ``readers``,
  ``publishers``, ``mishaps``.
- **Checks**: ``book`` writes down what truly happened, ``checks`` compares.

``mutations`` names the faults that can be put in. A fault is a subclass of one rule, so no rule
knows of it.
"""
