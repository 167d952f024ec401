"""The parts of one gateway, joined; and the drain of its readers.

Transports are not in it: they import it.
"""
