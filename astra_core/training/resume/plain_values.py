"""Plain values as JSON and back, with what JSON lacks: infinities, NaN and keys that are numbers.

Torch's schedules keep such values in their state: ``ReduceLROnPlateau`` an infinity,
``MultiStepLR`` a table by step. A value that JSON has stays unchanged, so older checkpoints are
read in the same way.
"""

import math
from collections.abc import Mapping
from typing import Any

from astra_core.errors import CheckpointError

_KIND, _VALUE = "$kind", "$value"


def as_json(value: Any, *, subject: str) -> Any:
    """The value as JSON; tuples become lists.

    Args:
        value: Numbers, texts, lists and mappings.
        subject: The owner's name in an error.

    Raises:
        CheckpointError: Something in it is not a plain value.
    """
    if isinstance(value, float) and not math.isfinite(value):
        return {_KIND: "float", _VALUE: str(float(value))}
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, list | tuple):
        return [as_json(each, subject=subject) for each in value]
    if isinstance(value, Mapping):
        pairs = [(key, as_json(each, subject=subject)) for key, each in value.items()]
        if all(isinstance(key, str) for key, _ in pairs):
            return dict(pairs)
        keys = [as_json(key, subject=subject) for key, _ in pairs]
        return {_KIND: "pairs", _VALUE: [[k, v] for k, (_, v) in zip(keys, pairs, strict=True)]}
    msg = (
        f"{subject} must have a state of numbers, texts, lists and mappings, got a "
        f"{type(value).__name__} in it; override its state_dict"
    )
    raise CheckpointError(msg)


def from_json(value: Any) -> Any:
    """The value that ``as_json`` was given, with lists for tuples."""
    if isinstance(value, list):
        return [from_json(each) for each in value]
    if not isinstance(value, dict):
        return value
    if value.keys() != {_KIND, _VALUE}:
        return {key: from_json(each) for key, each in value.items()}
    if value[_KIND] == "float":
        return float(value[_VALUE])
    return {from_json(key): from_json(each) for key, each in value[_VALUE]}
