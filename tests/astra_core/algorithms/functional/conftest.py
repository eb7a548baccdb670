"""Shape checks on every call, and the numbers of the reference systems."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

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


@pytest.fixture(scope="session")
def checked() -> dict[str, Callable[..., Any]]:
    """The package's functions, which check every annotated shape and type."""
    from beartype import beartype
    from jaxtyping import jaxtyped

    own = {name: getattr(functional, name) for name in functional.__all__}
    return {
        name: jaxtyped(function, typechecker=beartype)
        for name, function in own.items()
        if isinstance(function, FunctionType)
    }


@pytest.fixture(scope="module", autouse=True)
def checked_shapes(checked: dict[str, Callable[..., Any]]) -> Iterator[None]:
    """They take the place of the package's own while a test runs."""
    with pytest.MonkeyPatch.context() as patch:
        for name, function in checked.items():
            patch.setattr(functional, name, function)
        yield
