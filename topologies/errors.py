"""The exceptions of this room.

TopologyError
├── UnknownTopology    no topology of that name; the message lists those there are
└── ParametersInvalid  a parameter is unknown or out of range; names topology, parameter and what was expected
"""


class TopologyError(Exception):
    """Base of everything this room raises on purpose."""


class UnknownTopology(TopologyError):
    """No topology of that name."""


class ParametersInvalid(TopologyError):
    """A topology's parameters are wrong."""
