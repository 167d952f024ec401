"""newsfabric: the parts that every service of the fabric shares.

The root is the basis of every module. Each folder is a subject; CONTRIBUTING.md has them all.
:mod:`newsfabric.publish` and :mod:`newsfabric.reader` are for other people's programs as well.
"""
