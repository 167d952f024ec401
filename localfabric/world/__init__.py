"""A whole fabric on one machine, on loopback: real RabbitMQ nodes and every service.

For development, demonstrations and tests; of the services only the scaler's driver ``world`` uses
it. ``layout`` computes parts and ports as values, ``start`` starts them, ``canary`` proves that
they work, ``status`` inspects them and ``stop`` ends them. All state is in one folder (``state``).
Every process has that folder's path in its environment (``processes``), by which ``stop`` finds all
of them.
"""
