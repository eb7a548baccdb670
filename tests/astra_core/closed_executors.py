"""Ends the workers of all executors of this process, between tests."""

from astra_parts.executors.scoring import _executors


def close_executors() -> None:
    while _executors:
        _executors.popitem()[1].close()
