"""The exceptions of this room.

TopologyError
├── UnknownTopology    no topology of that name; the message lists those there are
├── TopologyInvalid    a file or an installed package offers no sound topology; names it, the line and what is wrong
├── ParametersInvalid  a parameter is unknown or out of range; names topology, parameter and what was expected
├── PriceRatioUnknown  parameters leave something to the roles' prices, and there are none to compare; says why
├── UnknownRole        a node visits a role that its topology has not
└── DrawingFailed      Graphviz is missing or failed
"""


class TopologyError(Exception):
    """Base of everything this room raises on purpose."""


class UnknownTopology(TopologyError):
    """No topology of that name."""


class TopologyInvalid(TopologyError):
    """A topology of somebody's own cannot be used as it is."""


class ParametersInvalid(TopologyError):
    """A topology's parameters are wrong."""


class PriceRatioUnknown(TopologyError):
    """The prices of two roles cannot be compared."""


class UnknownRole(TopologyError):
    """A node visits a role that its topology has not."""


class DrawingFailed(TopologyError):
    """No picture can be made."""
