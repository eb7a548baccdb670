"""Values for a command that changes nothing, laid over those of params.yaml.

A process passes them to the processes that it starts, in one environment variable. Code that reads
params.yaml by ``tasks.params.schema.read_params`` sees them; DVC does not. A kill leaves nothing
behind.
"""

import copy
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from astra_core.errors import ConfigurationError
from astra_core.errors.exception_text import excerpt
from tasks.machine.variables import variable_set

VARIABLE = "ASTRA_OVERRIDES"
"""The environment variable; ``laid_over`` sets it for the duration of a command."""


def overrides() -> dict[str, Any]:
    """The values that hold in place of those of params.yaml, by dotted key; empty without any.

    Raises ConfigurationError if the variable does not hold a JSON object.
    """
    written = os.environ.get(VARIABLE)
    if not written:
        return {}
    try:
        found = json.loads(written)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        msg = (
            f"{VARIABLE} must be a JSON object of keys and values, got {excerpt(written)}; "
            "unset it: 'astra check --set' sets it for itself"
        )
        raise ConfigurationError(msg)
    return found


@contextmanager
def laid_over(values: Mapping[str, Any]) -> Iterator[None]:
    """A context in which these values hold, here and in the processes started in it.

    ``values``: plain values by dotted key, such as ``{"training.lr": 1e-4}``. With none the earlier
    values stay in force.
    """
    with variable_set(VARIABLE, json.dumps({**overrides(), **values}) if values else None):
        yield


def overlaid(record: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of the record of params.yaml in which the overrides replace its own values.

    Raises ConfigurationError if a key leads through something that has no keys.
    """
    new = copy.deepcopy(dict(record))
    for key, value in overrides().items():
        owner, last = owner_of(new, key)
        owner[last] = value
    return new


def owner_of(record: Any, key: str) -> tuple[Any, str]:
    """The mapping that holds a dotted key, and the key's last part; a missing mapping is created.

    Raises ConfigurationError if the key is malformed, or leads through something that has no keys.
    """
    parts = key.strip().split(".")
    if not all(parts):
        msg = f"a key must read section.key, got {excerpt(key)}; see 'astra params --all'"
        raise ConfigurationError(msg)
    owner = record
    for part in parts[:-1]:
        if owner.get(part) is None:
            owner[part] = {}
        owner = owner[part]
        if not isinstance(owner, dict):
            got = f"one value at '{part}'"
            msg = f"{key} must lead to a value, got {got}; see 'astra params --all'"
            raise ConfigurationError(msg)
    return owner, parts[-1]
