"""The real sandbox, for tests of what runs inside it; where it cannot start, such a test is skipped with the mend."""

import functools

import pytest

from harbor_tasks.errors import SandboxMissing
from harbor_tasks.sandbox.bubblewrap import Bubblewrap


@functools.cache
def _backend() -> Bubblewrap:
    return Bubblewrap()


_proved: set[Bubblewrap] = set()


async def bubblewrap() -> Bubblewrap:
    """One backend for the whole test process: what it found out about the machine is kept."""
    backend = _backend()
    if backend not in _proved:
        try:
            await backend.probe()
        except SandboxMissing as missing:
            pytest.skip(str(missing))
        _proved.add(backend)
    return backend
