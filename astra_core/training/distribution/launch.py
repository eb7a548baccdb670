"""What torchrun, accelerate or our own launcher say about this process in the environment."""

import os

from astra_core.errors import ConfigurationError
from astra_core.errors.exception_text import excerpt

_MOST_PROCESSES = 1 << 16
_MOST_PORTS = (1 << 16) - 1
_WAY_OUT = "start it with torchrun, or unset it"


def world_size() -> int | None:
    """The number of processes that were started together; None if nothing says so.

    Raises ConfigurationError if ``WORLD_SIZE`` is not a number of processes.
    """
    return _number("WORLD_SIZE", low=1, high=_MOST_PROCESSES)


def own_rank() -> int:
    """The number of this process among those that were started together, from 0.

    Raises ConfigurationError if ``RANK`` is no number below ``WORLD_SIZE``.
    """
    return _number("RANK", low=0, high=(world_size() or _MOST_PROCESSES) - 1) or 0


def local_rank() -> int:
    """The number of this process among those of its machine, from 0.

    Raises ConfigurationError if ``LOCAL_RANK`` is no such number.
    """
    return _number("LOCAL_RANK", low=0, high=_MOST_PROCESSES) or 0


def local_world_size() -> int:
    """The number of processes that were started together on this machine.

    Raises ConfigurationError if ``LOCAL_WORLD_SIZE`` is not a number of processes.
    """
    return _number("LOCAL_WORLD_SIZE", low=1, high=_MOST_PROCESSES) or 1


def check_launch() -> None:
    """Checks that the variables describe a group of processes that can find each other, or none."""
    size = world_size()
    own_rank(), local_rank(), local_world_size()
    port = _number("MASTER_PORT", low=1, high=_MOST_PORTS)
    if size is None or size == 1:
        return
    given = {"RANK": os.environ.get("RANK"), "MASTER_PORT": port}
    given["MASTER_ADDR"] = os.environ.get("MASTER_ADDR")
    for name, value in given.items():
        if value is None or value == "":
            msg = f"{name} must be set where WORLD_SIZE is {size}, got nothing; {_WAY_OUT}"
            raise ConfigurationError(msg)


def _number(name: str, *, low: int, high: int) -> int | None:
    written = os.environ.get(name, "").strip()
    if not written:
        return None
    # Only digits: int() would accept "1_0" and Arabic digits, which torch does not.
    is_number = written.isascii() and written.isdigit() and len(written) < 10
    if not is_number or not low <= int(written) <= high:
        msg = f"{name} must be a number from {low} to {high}, got {excerpt(written)}; {_WAY_OUT}"
        raise ConfigurationError(msg)
    return int(written)
