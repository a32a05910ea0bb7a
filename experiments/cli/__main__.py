"""python -m experiments.cli: the command without its installed script."""

from experiments.cli import main

main()
