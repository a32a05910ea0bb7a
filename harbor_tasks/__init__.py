"""Tasks in Harbor's format, the sandboxes they run in, and the verifier that scores them.

This room knows nothing of models, money or topologies and imports nothing else of the project.
"""
