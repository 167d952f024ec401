"""``python -m wholesale router …`` and ``python -m wholesale frontdesk …``."""

from __future__ import annotations

from wholesale.commands import main

if __name__ == "__main__":
    main()
