"""Certificates of the fabric's own authority: made, renewed, rotated, checked.

:mod:`~newsfabric.certificates.making` makes and describes certificates, without I/O;
:mod:`~newsfabric.certificates.due` decides which must be renewed, and why;
:mod:`~newsfabric.certificates.folder` stores an authority and its certificates as files;
:mod:`~newsfabric.certificates.checking` judges certificates of any authority.

Connections use certificates by :mod:`newsfabric.tls`, which needs none of these.
"""
