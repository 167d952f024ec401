"""``python -m operations.cli``, for machines where the script isn't on the PATH."""

from operations.cli import main

main()
