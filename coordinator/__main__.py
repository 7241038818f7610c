"""`python -m coordinator` is the command `muster`."""

from coordinator.cli import main

main()
