import os

import pytest

from tasks.machine.variables import variable_set

NAME = "ASTRA_TEST_VARIABLE"


@pytest.mark.parametrize("before", [None, "old"])
@pytest.mark.parametrize("value", [None, "new"])
def test_a_variable_is_set_in_the_body_alone(monkeypatch, before, value):
    monkeypatch.delenv(NAME, raising=False)
    if before is not None:
        monkeypatch.setenv(NAME, before)

    with pytest.raises(KeyError), variable_set(NAME, value):
        _fail_after(found := [])

    assert [value or before] == found
    assert before == os.environ.get(NAME)


def _fail_after(found):
    found.append(os.environ.get(NAME))
    raise KeyError
