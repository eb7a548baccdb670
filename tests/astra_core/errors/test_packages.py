import pytest

from astra_core.errors import ConfigurationError
from astra_core.errors.packages import require_package


def test_a_package_that_is_there_is_fine():
    require_package("torch", subject="a sink", extra="none")


def test_a_package_that_is_missing_is_named_with_its_extra():
    with pytest.raises(ConfigurationError) as told:
        require_package("no_such", subject="executor 'x'", extra="y", otherwise=" or take another")

    assert (
        "executor 'x' must have the package no_such, got none; install it with "
        "python -m pip install 'astra-red-team[y]' or take another"
    ) == str(told.value)
