import copy
import json
import math
import pickle

import pytest
from each_row import each_row

from astra_core.errors import DataError
from astra_core.rollout.metadata import Metadata, problem_of

VALUES = {"category": "fraud", "difficulty": 3, "share": 0.25, "is_new": True, "note": None}


def test_metadata_keeps_values_types_and_order():
    found = Metadata(VALUES)

    assert VALUES == found
    assert list(VALUES) == list(found)
    assert [type(value) for value in VALUES.values()] == [type(found[name]) for name in VALUES]
    assert VALUES == json.loads(json.dumps(dict(found)))


def test_metadata_cannot_be_changed():
    given = dict(VALUES)
    found = Metadata(given)
    given["category"] = "theft"

    assert "fraud" == found["category"]
    with pytest.raises(TypeError):
        found["category"] = "theft"


def test_metadata_survives_a_copy_and_another_process():
    found = Metadata(VALUES)

    sent = pickle.loads(pickle.dumps(found))  # noqa: S301 - as processes do among themselves
    for again in (copy.deepcopy(found), sent):
        assert found == again
        assert hash(found) == hash(again)
    assert found != Metadata({**VALUES, "difficulty": 4})


@each_row(
    ("value", "problem"),
    [
        (["a"], "list"),
        ({"a": 1}, "dict"),
        (b"a", "bytes"),
        (math.nan, "a number that is not finite"),
        (math.inf, "a number that is not finite"),
        ("half \ud83d", "half of a character (a lone surrogate)"),
        ("whole", ""),
        (2**70, ""),
        (False, ""),
        (None, ""),
    ],
)
def test_only_what_json_has_is_plain(value, problem):
    assert problem == problem_of(value)
    if problem:
        with pytest.raises(DataError, match="metadata of a prompt must be text, numbers"):
            Metadata({"tags": value})


def test_a_name_must_be_text():
    with pytest.raises(DataError, match="a name that is no text"):
        Metadata({3: "a"})
