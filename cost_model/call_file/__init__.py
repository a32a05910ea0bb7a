"""A log of calls, one a line, explained without running anything: `line` reads, `scope` prices, `report` explains."""
