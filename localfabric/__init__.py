"""A whole fabric on one machine: worlds, chaos in them, and the commands for both.

For development, demonstrations and tests. It imports `newsfabric`, never the other way round; its
commands are added to the ``newsfabric`` command by entry points, as those of services are.
"""
