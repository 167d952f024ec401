"""``python -m newsfabric.cli``, for machines where the script isn't on the PATH."""

from newsfabric.cli import main

main()
