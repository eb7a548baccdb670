import os

import pytest
from each_row import each_row

from astra_core.errors import PluginError
from tasks.machine.exits import exits_refused


@each_row("status", [0, 7])
def test_an_abrupt_exit_is_an_error_that_names_its_place(status):
    before = os._exit
    told = rf"must end by itself, got os\._exit\({status}\) in .*test_exits\.py, line \d+"
    with pytest.raises(PluginError, match=told), exits_refused():
        os._exit(status)

    assert before is os._exit


@pytest.mark.real
def test_a_forked_process_ends_as_it_asks_to():
    with exits_refused():
        child = os.fork()
        if child == 0:
            os._exit(7)
        status = os.waitpid(child, 0)[1]

    assert 7 == os.waitstatus_to_exitcode(status)
