"""``python -m wholesale router …``, ``… mailbox …`` and ``… frontdesk …``."""

from __future__ import annotations

from wholesale.commands import main

if __name__ == "__main__":
    main()
