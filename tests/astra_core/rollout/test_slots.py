import pytest

from astra_core.errors import DataError
from astra_core.rollout import Prompt
from astra_core.rollout.slots import columns_in, fill_slots

TOLD = 'Code {secret} of {level}; {{secret}}, {"a": 1} and {} are texts.'


def test_slots_are_filled_from_the_prompts_own_columns():
    prompt = Prompt.of("so", {"secret": "{level}", "level": 3})

    # What a column holds is text, even if it looks like a slot.
    assert 'Code {level} of 3; {secret}, {"a": 1} and {} are texts.' == fill_slots(TOLD, prompt)
    assert {"secret", "level"} == columns_in(TOLD)


def test_a_prompt_without_the_column_is_one_line():
    with pytest.raises(DataError, match=r"must have a value in the column 'level', which system"):
        fill_slots(TOLD, Prompt.of("so", {"secret": "red", "level": None}))
