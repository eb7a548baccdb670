import pytest

from astra_core.errors import ConfigurationError
from astra_core.sinks.packages import require_package


def test_a_package_that_is_there_is_fine():
    require_package("torch")


def test_a_package_that_is_missing_is_named_with_its_extra():
    with pytest.raises(ConfigurationError, match=r"pip install -e '\.\[no_such_package\]'") as told:
        require_package("no_such_package")

    assert 1 == len(str(told.value).splitlines())
