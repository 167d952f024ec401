"""RabbitMQs beside each other: the cost of each release for this fabric.

Every figure is measured on each release in turns, in one run, and the medians are compared: a
machine isn't equally fast at all times.
"""
