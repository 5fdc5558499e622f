"""``python -m stakes``: the command line."""

from stakes.cli import main

main()
