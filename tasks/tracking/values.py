"""Values that a run can hold: flat parameters, finite numbers, texts within MLflow's limits."""

import json
import math
import re
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any

from pydantic import BaseModel

# Limits in MLflow's validation, in characters.
MAX_VALUE = 6000
MAX_TAG = 8000
_MAX_KEY = 250


def finite_numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    """The numbers that a chart can show; the store would keep infinity as 1.8e308."""
    numbers = {}
    for name, value in metrics.items():
        try:
            number = float(value)
        except (TypeError, ValueError):
            continue
        if math.isfinite(number):
            numbers[clean_key(name)] = number
    return numbers


def flatten(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """Names such as ``training.algorithm.name`` with their values as text."""
    if isinstance(value, BaseModel):
        value = value.model_dump(mode="json")
    if isinstance(value, Mapping) and (value or not path):
        for key, part in value.items():
            yield from flatten(part, (*path, str(key)))
    else:
        text = value if isinstance(value, str) else json.dumps(value, default=str)
        yield ".".join(path), text


def cut(value: str, length: int) -> str:
    """The value; if it is too long for the store, its beginning and a digest of the whole."""
    if len(value) <= length:
        return value
    digest = f" ... sha256:{sha256(value.encode()).hexdigest()}"
    return value[: length - len(digest)] + digest


def clean_key(key: str) -> str:
    """The key without characters that the store refuses."""
    return re.sub(r"[^\w.\- :/]", "_", key, flags=re.ASCII)[:_MAX_KEY]
