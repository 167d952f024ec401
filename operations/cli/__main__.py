"""``python -m operations.cli``, for where the script isn't on the PATH."""

from operations.cli import main

main()
