"""Shovels: what they should be, what they are, and how the second becomes the first.

``plan`` (pure) compares, ``homes`` (pure) decides where source queues live, ``apply`` talks to
brokers, ``keeper`` repeats it for ever, ``cli`` does it once for a person.
"""
