"""A provider that is simulated, and nothing else special: an ASGI app that speaks three wire protocols.

It counts tokens only from the bytes that it was sent and those that it emits, and caches prefixes by what was really
sent. A persona decides what is said, how fast, and which commands are run; it sees the request alone and can set no
usage field. It does not know of trials, topologies or the ledger. docs/simulated.md is its reference.
"""
