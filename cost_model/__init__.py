"""What a chain of model calls costs, and why: tokens by class, dated prices, cache causes, charges.

Pure code: it imports nothing else of the project, talks to no network and reads no file but price files.
"""
