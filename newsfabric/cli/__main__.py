"""``python -m newsfabric.cli``, for where the script isn't on the PATH."""

from newsfabric.cli import main

main()
