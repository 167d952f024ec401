"""Certificates of the fabric's own authority: made, renewed, rotated, checked.

:mod:`~operations.certificates.making` makes and describes certificates, without I/O;
:mod:`~operations.certificates.due` decides which must be renewed, and why;
:mod:`~operations.certificates.folder` stores an authority and its certificates as files;
:mod:`~operations.certificates.checking` judges certificates of any authority.

Connections use certificates by :mod:`newsfabric.tls`, which needs none of these.
"""
