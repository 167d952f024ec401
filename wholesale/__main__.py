"""``python -m wholesale KIND …``, with a command for each kind of service."""

from __future__ import annotations

from wholesale.commands import main

if __name__ == "__main__":
    main()
