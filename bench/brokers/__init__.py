"""RabbitMQs beside each other: what each release costs this fabric.

Every figure is measured on each of them in turns, in one run, and the medians are compared: a
machine isn't equally fast at all times.
"""
