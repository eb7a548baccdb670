"""Shape checks on every call, and the numbers of the reference systems."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from checked_functions import checked_functions, read_cases

from astra_parts.algorithms import functional


@pytest.fixture(scope="session")
def cases() -> Callable[..., list[dict[str, Any]]]:
    """Reads cases of one vector file."""
    return read_cases


@pytest.fixture(scope="session")
def checked() -> dict[str, Callable[..., Any]]:
    """The package's functions, which check every annotated shape and type."""
    return checked_functions(functional)


@pytest.fixture(scope="module", autouse=True)
def checked_shapes(checked: dict[str, Callable[..., Any]]) -> Iterator[None]:
    """They take the place of the package's own while a test runs."""
    with pytest.MonkeyPatch.context() as patch:
        for name, function in checked.items():
            patch.setattr(functional, name, function)
        yield
