"""The frame of every long-running process: start, log, pages for operators, reports, stop.

This file imports none of it: a program that wants logs alone doesn't load a server.
"""
