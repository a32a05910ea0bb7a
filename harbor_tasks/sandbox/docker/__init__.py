"""The sandbox that a Docker engine holds: `Docker` in `backend` is its front."""
