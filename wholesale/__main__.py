"""``python -m wholesale router …``, ``… mailbox …``, ``… frontdesk …``, ``… scaler …``."""

from __future__ import annotations

from wholesale.commands import main

if __name__ == "__main__":
    main()
