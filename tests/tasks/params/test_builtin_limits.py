import pytest

from astra_core.errors import ConfigurationError
from tasks.params.builtin_limits import check_builtin
from tasks.params.schema import Params


def test_the_defaults_and_their_neighbours_can_be_built():
    check_builtin(Params())
    for settings in ({"num_heads": 64}, {"hidden_size": 8}, {"context_tokens": 25}):
        check_builtin(Params.read({"models": {"builtin": settings}}, where=""))


def test_a_speaker_that_is_not_built_in_needs_no_room_in_it():
    folder = {"source": "folder", "path": "x"}
    models = {"attacker": folder, "target": folder, "builtin": {"context_tokens": 1}}

    check_builtin(Params.read({"models": models}, where=""))


def test_a_reply_needs_room_too():
    record = {"system": {"response": {"max_new_tokens": 256}}}

    with pytest.raises(ConfigurationError, match=r"above system\.response\.max_new_tokens = 256"):
        check_builtin(Params.read(record, where=""))
