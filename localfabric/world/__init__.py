"""A whole fabric on one machine, on loopback: real RabbitMQ nodes and every service.

For development, demonstrations and tests; of the services only the scaler's driver ``world`` knows
it. ``layout`` says as values what there will be and on which ports, ``start`` starts it, ``canary``
proves that it works, ``status`` looks at it and ``stop`` ends it. All state is in one
folder (``state``), and every process carries that folder's path in its environment
(``processes``), so that nothing can be lost that ``stop`` doesn't find.
"""
