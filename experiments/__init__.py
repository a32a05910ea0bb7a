"""Specs, plans, the runner, the store, statistics and the command line. May use every other room."""
