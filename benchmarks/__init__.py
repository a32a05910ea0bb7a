"""Scripts that print ratios measured in one run. `make bench` runs them; nothing here is a test."""
