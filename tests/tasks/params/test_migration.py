import pytest
from each_row import each_row

from astra_core.errors import ConfigurationError
from tasks.params.migration import migrate, refuse_earlier


@each_row(
    ("before", "after", "told"),
    [
        (
            {"system": {"num_threads": 2}},
            {"system": {}, "machine": {"num_threads": 2}},
            "system.num_threads is a key of an earlier version, now machine.num_threads",
        ),
        (
            {"promotion": {"confidence": 0.95, "horizon": 30}},
            {"promotion": {"horizon": 30}},
            "now gone (was 0.95): promotion.family_error bounds the gate's errors",
        ),
        (
            {"training": {"optimizer": {"name": "AdamW"}}},
            {"training": {"optimizer": {"name": "adamw"}}},
            "training.optimizer.name is adamw now, no longer AdamW",
        ),
        (
            {"system": {"compile": "auto"}},
            {"system": {"compile": False}},
            "system.compile is false now, no longer auto",
        ),
        (
            {"training": {"algorithm": {"name": "ipo", "options": {"beta": 0.2}}}},
            {"training": {"algorithm": {"name": "dpo", "options": {"beta": 0.2, "loss": "ipo"}}}},
            "is dpo with loss: ipo now",
        ),
        (
            {
                "evaluation": {
                    "second": [{"name": "llm_judge", "options": {"votes": 3, "path": "x"}}]
                }
            },
            {"evaluation": {"second": [{"name": "llm_judge", "options": {"path": "x"}}]}},
            "votes is an option of an earlier llm_judge (was 3): it reads the likelihood",
        ),
    ],
)
def test_a_record_of_an_earlier_version_is_rewritten(before, after, told):
    with pytest.raises(ConfigurationError, match="'astra migrate' rewrites the file"):
        refuse_earlier(before)
    (line,) = migrate(before)

    assert told in line
    assert after == before
    assert [] == list(migrate(before))


@each_row(
    "record",
    [{}, {"system": None}, {"promotion": [1]}, {"training": {"algorithm": {"name": ["dpo"]}}}],
)
def test_a_record_of_this_version_or_of_none_stays(record):
    refuse_earlier(record)
