"""Functions that check every annotated shape and type, and the numbers of the reference systems."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import pytest

VECTORS = Path(__file__).parent / "vectors"


def read_cases(name: str, **entries: object) -> list[dict[str, Any]]:
    """Cases of one vector file, or those of them that hold the given entries."""
    found = json.loads((VECTORS / f"{name}.json").read_text(encoding="utf-8"))["cases"]
    kept = [case for case in found if entries.items() <= case.items()]
    assert kept
    return kept


def offered(package: ModuleType) -> set[str]:
    """The names that a package offers, its own modules aside."""
    names = vars(package).items()
    return {
        name for name, own in names if not (name.startswith("_") or isinstance(own, ModuleType))
    }


def checked_functions(package: ModuleType) -> dict[str, Callable[..., Any]]:
    """The functions that a package offers, each with a check of what it is given."""
    from beartype import beartype
    from jaxtyping import jaxtyped

    return {
        name: jaxtyped(function, typechecker=beartype)
        for name, function in vars(package).items()
        if name in offered(package) and isinstance(function, FunctionType)
    }


@pytest.fixture(scope="session")
def cases() -> Callable[..., list[dict[str, Any]]]:
    """Reads cases of one vector file."""
    return read_cases


@pytest.fixture(scope="session")
def checked() -> list[tuple[ModuleType, dict[str, Callable[..., Any]]]]:
    """The functions of both packages of mathematics, which check every annotated shape and type."""
    from astra_core.algorithms import functional as core
    from astra_parts.algorithms import functional as parts

    return [(package, checked_functions(package)) for package in (core, parts)]


@pytest.fixture(scope="module", autouse=True)
def checked_shapes(checked: list[tuple[ModuleType, dict[str, Any]]]) -> Iterator[None]:
    """They take the place of the packages' own while a test runs."""
    with pytest.MonkeyPatch.context() as patch:
        for package, functions in checked:
            for name, function in functions.items():
                patch.setattr(package, name, function)
        yield
