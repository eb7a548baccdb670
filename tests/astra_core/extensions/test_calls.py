import os
import sys

import bad_plugins as bad
import pytest
from each_row import each_row

from astra_core.errors import ConfigurationError, DataError, PluginError, ScorerError
from astra_core.extensions.calls import path_of, plugin_call

NAME = "plugins.mine:Mine"


def call(error, plugin=NAME):
    with plugin_call("scorer", plugin, "score"):
        raise error


@each_row("code", [None, 0, 1, True])
def test_to_end_the_program_is_a_failure_whatever_the_code(code):
    with pytest.raises(PluginError, match=rf"got sys\.exit\({code}\) in score"):
        call(SystemExit(code))


@pytest.mark.real
def test_a_process_that_a_plug_in_forks_does_not_come_back():
    def ended(act):
        with plugin_call("scorer", NAME, "score"):
            child = os.fork()
            if child == 0:
                act()
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    assert [0, 3, 1] == [ended(act) for act in (sys.exit, lambda: sys.exit(3), lambda: None)]


@each_row("error", [SystemExit(0), SystemExit("idiot")])
def test_also_a_part_of_our_own_may_not_end_the_program(error):
    with pytest.raises(PluginError, match=r"scorer 'phrases' must not end the program") as caught:
        call(error, "phrases")
    assert "idiot" not in str(caught.value)


def test_a_bug_in_a_part_of_our_own_stays_a_bug():
    with pytest.raises(KeyError):
        call(KeyError("x"), "phrases")


@each_row("kind", [ScorerError, DataError, ConfigurationError])
def test_an_error_of_ours_keeps_its_class_so_that_it_is_treated_alike(kind):
    with pytest.raises(kind, match=f"scorer '{NAME}' in score: n· a·····"):
        call(kind("no answer"))


def test_a_class_of_somebody_elses_becomes_the_nearest_of_ours():
    with pytest.raises(DataError) as caught:
        call(bad.CustomData(1, "x"))
    assert DataError is type(caught.value)


def test_a_failure_is_reported_once_though_calls_lie_in_calls():
    with (
        pytest.raises(PluginError, match=r"^scorer 'plugins\.mine:Mine' must not") as caught,
        plugin_call("reward", "plugins.mine:Reward", "assign"),
    ):
        call(RuntimeError("x"))
    assert "reward" not in str(caught.value)


def test_the_path_of_an_object_is_that_of_its_class():
    assert "bad_plugins:Plain" == path_of(bad.Plain) == path_of(bad.Plain(None))


def test_what_a_plug_in_raises_beside_exceptions_names_it_and_ctrl_c_passes():
    with pytest.raises(PluginError, match="must not fail in score, got BaseException"):
        call(BaseException("gone"))
    with pytest.raises(KeyboardInterrupt):
        call(KeyboardInterrupt())
