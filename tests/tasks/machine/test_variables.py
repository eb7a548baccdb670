import os

import pytest
from each_row import each_row

from tasks.machine.variables import variable_set

NAME = "ASTRA_TEST_VARIABLE"


@each_row("before", [None, "old"])
@each_row("value", [None, "new"])
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
