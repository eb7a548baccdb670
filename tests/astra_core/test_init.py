import subprocess
import sys

import pytest

import astra_core


@pytest.mark.parametrize("name", dir(astra_core))
def test_every_public_name_is_there(name):
    assert getattr(astra_core, name).__name__ == name


def test_a_name_that_does_not_exist_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'NoSuch'"):
        _ = astra_core.NoSuch


def test_importing_the_package_loads_no_torch():
    code = "import sys, astra_core; sys.exit('torch' in sys.modules)"

    assert 0 == subprocess.run([sys.executable, "-c", code], check=False).returncode
