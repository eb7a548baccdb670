import pytest
from each_row import each_row

from astra_core.errors import ConfigurationError
from tasks.params.prompts import PromptsConfiguration

FILE = {"source": "file", "path": "my/prompts.csv"}


@each_row(
    ("record", "rule"),
    [
        ({"source": "file"}, "path must name a file"),
        ({"source": "hub", "dataset": "lab/prompts"}, "dataset and revision"),
        ({"source": "hub", "dataset": "lab/prompts", "revision": "main"}, "a branch can move"),
        (FILE | {"metadata_columns": ["text"]}, "columns beside 'text'"),
        ({"metadata_columns": ["tone"]}, "whose column is the mood"),
        ({"goal_column": "goal"}, "'hub' with goal_column"),
        (FILE | {"goal_column": "a", "category_column": "a"}, "must differ"),
        ({"dev_path": "my/dev.csv"}, "'hub' with dev_path"),
        ({"path": "my/dev.csv"}, "must be 'file' with path"),
    ],
)
def test_what_a_source_cannot_have_is_refused(record, rule):
    with pytest.raises(ConfigurationError, match=rule):
        PromptsConfiguration.read(record, where="prompts")


def test_columns_are_named_by_what_they_are_kept_as():
    given = {"goal_column": "behaviour", "category_column": "kind", "reference_column": "example"}

    told = PromptsConfiguration.read(FILE | given, where="prompts").told_columns

    assert {"behaviour": "goal", "kind": "category", "example": "reference_reply"} == told
    assert {} == PromptsConfiguration.read(FILE, where="prompts").told_columns
