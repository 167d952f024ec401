"""Shovels: their plan, their actual state, and the keeper that makes the second equal the first.

``plan`` (pure) compares, ``places`` (pure) chooses each shovel's place, ``apply`` talks to brokers,
``keeper`` repeats all of it for ever, ``cli`` does it once for a person.
"""
