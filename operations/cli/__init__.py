"""The command ``newsfabric``.

A command's module is loaded when the command is looked up, and its dependencies when it runs, so
that ``--help`` is quick. Packages that ``newsfabric`` may not import add their commands through the
entry-point group ``newsfabric.commands``: run ``make setup`` after adding one. An error of ours is
one line on stderr and exit code 1.

These commands work with any fabric; those for a fabric on one machine are in ``localfabric.cli``.
"""

from __future__ import annotations

from operations.cli.group import cli

__all__ = ["cli", "main"]


def main() -> None:
    """Run the ``newsfabric`` script."""
    cli(prog_name="newsfabric")
