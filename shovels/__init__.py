"""Shovels: what they should be, what they are, and how the second becomes the first.

``plan`` (pure) compares, ``places`` (pure) decides where each shovel is, ``apply`` talks to
brokers, ``keeper`` repeats it for ever, ``cli`` does it once for a person.
"""
