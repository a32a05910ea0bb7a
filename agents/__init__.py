"""Models in roles: the wire clients, lanes, the loop that runs a role's turns, and the simulated provider.

May use cost_model and harbor_tasks; knows nothing of topologies or experiments.
"""
