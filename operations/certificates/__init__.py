"""Certificates of the fabric's own authority: made, renewed, rotated, checked.

:mod:`~operations.certificates.making` makes and describes certificates, without I/O;
:mod:`~operations.certificates.due` says which have to be made anew, and why;
:mod:`~operations.certificates.folder` keeps an authority and what it signed as files;
:mod:`~operations.certificates.checking` judges certificates of any authority.

How connections use them is :mod:`newsfabric.tls`, which needs none of these.
"""
