"""Examples of what the code does. None depends on how fast the machine is, so hypothesis sets no deadline."""

from hypothesis import settings

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
