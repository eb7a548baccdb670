import hashlib

import pytest

from astra_core.errors import DataError
from astra_core.rollout import Prompt, runs_of
from astra_core.rollout.metadata import Metadata
from astra_core.rollout.prompt import columns_in, fill_slots
from astra_parts.testing import tiny_prompts


def test_a_prompt_takes_any_mapping_and_keeps_it_unchanged():
    row = {"category": "fraud", "difficulty": 2}
    prompt = Prompt.of("you are late", row)
    row["difficulty"] = 3

    assert Metadata({"category": "fraud", "difficulty": 2}) == prompt.metadata
    assert hashlib.sha256(b"you are late").hexdigest()[:16] == prompt.prompt_id
    assert prompt == Prompt(prompt.prompt_id, prompt.text, {"category": "fraud", "difficulty": 2})
    assert prompt != Prompt.of("you are late")
    assert hash(prompt) == hash(Prompt.of("you are late", prompt.metadata))


def test_a_prompt_refuses_metadata_that_is_not_plain():
    with pytest.raises(DataError, match="got list for 'tags'"):
        Prompt("0", "why", {"tags": ["a"]})


def test_runs_of_a_prompt_are_together_and_numbered_from_zero():
    first, second = tiny_prompts(2)
    runs = runs_of([first, second], 2)

    assert (first, second) == runs_of([first, second], 1)
    assert [(first.prompt_id, 0), (first.prompt_id, 1), (second.prompt_id, 0)] == [
        (run.prompt_id, run.run_id) for run in runs[:3]
    ]


TOLD = 'Code {secret} of {level}; {{secret}}, {"a": 1} and {} are texts.'


def test_slots_are_filled_from_the_prompts_own_columns():
    prompt = Prompt.of("so", {"secret": "{level}", "level": 3})

    # What a column holds is text, even if it looks like a slot.
    assert 'Code {level} of 3; {secret}, {"a": 1} and {} are texts.' == fill_slots(TOLD, prompt)
    assert {"secret", "level"} == columns_in(TOLD)


def test_a_prompt_without_the_column_is_one_line():
    with pytest.raises(DataError, match=r"must have a value in the column 'level', which system"):
        fill_slots(TOLD, Prompt.of("so", {"secret": "red", "level": None}))
