import json
import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from astra_core.errors import CheckpointError
from astra_core.training.resume.plain_values import as_json, from_json

# As st.text() without an alphabet, which takes seconds to find out what UTF-8 encodes.
TEXT = st.text(st.characters(exclude_categories=["Cs"]))
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT,
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(TEXT, inner)
        | st.dictionaries(st.integers(), inner, min_size=1)
    ),
)


@pytest.mark.real
@given(PLAIN)
def test_what_goes_through_json_comes_back(value):
    text = json.dumps(as_json(value, subject="it"), allow_nan=False)

    assert value == from_json(json.loads(text))


def test_a_nan_a_table_by_step_and_a_tuple_come_back_too():
    assert math.isnan(from_json(as_json(math.nan, subject="it")))
    assert {3: 1, 7: 2} == from_json(as_json(Counter({3: 1, 7: 2}), subject="it"))
    assert [1, [2]] == from_json(as_json((1, (2,)), subject="it"))


def test_what_json_has_is_left_as_it_is():
    value = {"base_lrs": [0.1, 2], "last_epoch": 3, "lr_lambdas": [None], "is": True}

    assert value == as_json(value, subject="it")


def test_what_is_no_plain_value_is_refused():
    with pytest.raises(CheckpointError, match=r"schedule 'x' must have a state .* got a object in"):
        as_json({"a": [object()]}, subject="schedule 'x'")
