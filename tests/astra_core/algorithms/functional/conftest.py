"""Shape checks on every call, and the numbers of the reference systems."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest
from beartype import beartype
from jaxtyping import jaxtyped

from astra_core.algorithms import functional

VECTORS = Path(__file__).parents[3] / "vectors"


@pytest.fixture(scope="session")
def cases() -> Callable[..., list[dict[str, Any]]]:
    """Cases of one vector file, or those of them that hold the given entries."""

    def read(name: str, **entries: object) -> list[dict[str, Any]]:
        found = json.loads((VECTORS / f"{name}.json").read_text(encoding="utf-8"))["cases"]
        kept = [case for case in found if entries.items() <= case.items()]
        assert kept
        return kept

    return read


@pytest.fixture(scope="module", autouse=True)
def checked_shapes() -> Iterator[None]:
    """Every annotated shape and type of the package is checked while a test runs."""
    with pytest.MonkeyPatch.context() as patch:
        for name in functional.__all__:
            function = getattr(functional, name)
            if isinstance(function, FunctionType):
                patch.setattr(functional, name, jaxtyped(function, typechecker=beartype))
        yield
