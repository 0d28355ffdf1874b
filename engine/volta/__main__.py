"""`python -m volta` is the command `volta`."""

from volta.cli import main

main()
