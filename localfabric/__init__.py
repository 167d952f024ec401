"""A whole fabric on one machine: worlds, chaos in them, and the commands for both.

For development, demonstrations and tests. It imports `newsfabric`, which imports nothing of it; its
commands hang into the ``newsfabric`` command by entry points, as those of services do.
"""
