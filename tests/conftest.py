"""The order of the tests, and the collector in their process."""

import gc

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # Those that are given more time than the others come first: no worker shall begin one when the others are done.
    items.sort(key=lambda item: item.get_closest_marker("timeout") is None)


def pytest_collection_finish() -> None:
    # Hundreds of thousands of objects stay to the end, and every run in a test would walk them: 0.4 s of CPU each time.
    gc.collect()
    gc.freeze()
