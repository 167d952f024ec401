"""The command ``newsfabric``.

Commands are loaded when they are asked for, and what they need when they run, so that
``--help`` is quick. Packages that ``operations`` may not import hang theirs in through the
entry-point group ``newsfabric.commands``: say ``make setup`` after adding one. An error of ours is
one line on stderr and exit code 1.

Here is what works with any fabric; what runs a fabric on one machine is in ``localfabric.cli``.
"""

from __future__ import annotations

from operations.cli.group import cli

__all__ = ["cli", "main"]


def main() -> None:
    """Entry point of the ``newsfabric`` script."""
    cli(prog_name="newsfabric")
